import Crypto
import Foundation
import Hummingbird
import Mustache
import NIOCore

/// The page `/connections`, which shows all connections to an administrator. It contains no script, and needs none.
struct ConnectionsPage: Sendable {
    private static let rows = 100

    let administrators: Set<String>
    let store: ConnectionStore
    private let template: MustacheTemplate
    private let contentSecurityPolicy: String

    /// - Parameter administrators: Subjects of certificates, as ``Principal/name``.
    init(administrators: Set<String>, store: ConnectionStore) throws {
        self.administrators = administrators
        self.store = store
        template = try MustacheTemplate(string: Self.html)
        let style = Data(SHA256.hash(data: Data(Self.style.utf8))).base64EncodedString()
        contentSecurityPolicy = """
            default-src 'none'; style-src 'sha256-\(style)'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'
            """
    }

    func addRoutes(to group: some RouterMethods<AuthenticatedContext>) {
        group.resource("connections") { request, context in
            guard request.method == .get else { throw HTTPError.methodNotAllowed("GET") }
            guard administrators.contains(context.principal.name) else {
                throw HTTPError(.forbidden, message: "Only an administrator can see the connections.")
            }
            let before = request.uri.queryParameters.get("before", as: Int64.self)
            let (connections, total) = try await store.list(before: before, limit: Self.rows)
            return html(connections, total: total)
        }
    }

    private func html(_ connections: [Connection], total: Int) -> Response {
        let older = connections.count == Self.rows ? connections.last?.number : nil
        let page = Page(total: total, older: older.map { "\($0)" }, rows: connections.map(Row.init))
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
        /// The parameter of the link to older connections.
        var older: String?
        var rows: [Row]
    }

    private struct Row {
        var id: String
        var application: String
        var principal: String
        var authority: String
        var device: String
        var created: String
        var lastSeen: String

        init(_ connection: Connection) {
            id = connection.id
            application = connection.application
            principal = connection.principal
            authority = connection.authority
            device = connection.properties["DeviceType"] ?? ""
            created = connection.created.formatted(.iso8601)
            lastSeen = connection.lastSeen.formatted(.iso8601)
        }
    }

    private static let style = """
        body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1d2733; }
        table { border-collapse: collapse; width: 100%; }
        th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #d5dbe1; }
        td { overflow-wrap: anywhere; }
        td.time { white-space: nowrap; }
        small { color: #5b6875; }
        """

    private static let html = """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta name="viewport" content="width=device-width">
        <title>Connections</title>
        <style>\(style)</style>
        </head>
        <body>
        <h1>Connections: {{total}}</h1>
        <table>
        <thead><tr><th>Connection</th><th>Application</th><th>Principal</th><th>Device</th><th>Created</th><th>Last seen</th></tr></thead>
        <tbody>
        {{#rows}}
        <tr><td><code>{{id}}</code></td><td>{{application}}</td><td>{{principal}}<br><small>{{authority}}</small></td>\
        <td>{{device}}</td><td class="time">{{created}}</td><td class="time">{{lastSeen}}</td></tr>
        {{/rows}}
        </tbody>
        </table>
        {{#older}}
        <p><a href="?before={{.}}">Older connections</a></p>
        {{/older}}
        </body>
        </html>

        """
}
