import CertificateProviding
import Contracts
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import Mustache
import NIOCore

/// The page that shows a person the contracts and their states. It contains no script, and needs none. It asks for no password:
/// it is served on a loopback address only, to requests that name one.
struct ContractsPage: Sendable {
    static let rows = 100

    private let book: ContractBook
    private let template: MustacheTemplate
    private let contentSecurityPolicy: String

    init(_ book: ContractBook) throws {
        self.book = book
        template = try MustacheTemplate(string: Self.html)
        let style = Data(SHA256.hash(data: Data(Self.style.utf8))).base64EncodedString()
        contentSecurityPolicy =
            "default-src 'none'; style-src 'sha256-\(style)'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    }

    func addRoutes(to router: some RouterMethods<ServerContext>) {
        router.resource("", [.get]) { request, _ in
            // A name that leads to the loopback address is another site's (DNS rebinding).
            guard Self.isLoopback(request.head.authority ?? "") else {
                throw HTTPError(.forbidden, message: "The page is there for localhost only.")
            }
            let before = try request.queryParameter("before").flatMap { Int($0) }
            let (contracts, total) = try await book.list(before: before, limit: Self.rows)
            return html(contracts, total: total)
        }
    }

    static func isLoopback(_ authority: String) -> Bool {
        let host =
            authority.hasPrefix("[")
            ? authority.prefix { $0 != "]" } + "]" : authority.prefix { $0 != ":" }
        return ["localhost", "127.0.0.1", "[::1]"].contains(host)
    }

    private func html(_ contracts: [ContractBook.OfficeContract], total: Int) -> Response {
        let older = contracts.count == Self.rows ? contracts.last?.revision : nil
        let page = Page(total: total, older: older.map { "\($0)" }, rows: contracts.map(Row.init))
        return Response(
            status: .ok,
            headers: [
                .contentType: "text/html; charset=UTF-8", .contentSecurityPolicy: contentSecurityPolicy,
                .xContentTypeOptions: "nosniff",
            ],
            body: ResponseBody(byteBuffer: ByteBuffer(string: template.render(page))))
    }

    private struct Page {
        var total: Int
        /// The parameter of the link to older changes.
        var older: String?
        var rows: [Row]
    }

    private struct Row {
        var id: String
        var account: String
        var customer: String
        var document: String
        var state: String
        var remark: String
        var changed: String

        init(_ contract: ContractBook.OfficeContract) {
            let content = contract.version.content
            id = contract.version.id
            account = DisplayText.visible(contract.account)
            customer = DisplayText.visible(content.customerNumber)
            document = DisplayText.visible(content.pdf.name)
            state = contract.version.state.rawValue
            remark =
                if let last = contract.version.approvals.last {
                    "signed by \(contract.version.approvals.count) of \(content.signatories.count), \(last.approved.formatted(.iso8601))"
                } else if !content.missing.isEmpty {
                    DisplayText.visible("missing: \(content.missing.joined(separator: ", "))")
                } else {
                    contract.isShared ? "" : "not for hosts"
                }
            changed = contract.changed.formatted(.iso8601)
        }
    }

    private static let style = """
        body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1d2733; background: #fff; }
        table { border-collapse: collapse; width: 100%; }
        th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #d5dbe1; }
        td { overflow-wrap: anywhere; }
        td.time, td.state { white-space: nowrap; }
        small { color: #5b6875; }
        code { font-size: 12px; }
        """

    private static let html = """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width">
        <title>Contracts</title>
        <style>\(style)</style>
        </head>
        <body>
        <h1>Contracts: {{total}}</h1>
        <table>
        <thead><tr><th>Contract</th><th>Account</th><th>Customer</th><th>Document</th><th>State</th><th>Changed</th></tr></thead>
        <tbody>
        {{#rows}}
        <tr><td><code>{{id}}</code></td><td>{{account}}</td><td>{{customer}}</td><td>{{document}}</td>\
        <td class="state">{{state}}<br><small>{{remark}}</small></td><td class="time">{{changed}}</td></tr>
        {{/rows}}
        </tbody>
        </table>
        {{#older}}
        <p><a href="?before={{.}}">Older changes</a></p>
        {{/older}}
        </body>
        </html>

        """
}
