import ArgumentParser
import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import NIOHTTP1
import ProviderTransport
import Terminal

struct Request: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "request",
        abstract:
            "Send one request to the platform server as the registered application, and write the body of the response.",
        discussion: """
            With the client certificate or the password of the registration, and the field X-SMP-APPCID. POST, PUT and PATCH have the \
            body that stdin has. Bodies have at most 32 MiB. Any status but 401 and 403 is a success, unless --fail says otherwise, and \
            a redirection is not followed, as curl does it.
            """)

    @OptionGroup var options: GlobalOptions

    @Argument(help: ArgumentHelp("The method, such as GET or POST.", valueName: "method")) var method: String
    @Argument(
        help: ArgumentHelp("The path and the query, percent-encoded, from the first slash on.", valueName: "url-path"))
    var target: String

    @Option(
        name: [.customLong("header"), .customShort("H")], parsing: .singleValue,
        help: ArgumentHelp(
            "A header field, such as 'Content-Type: application/json'; may be repeated.", valueName: "field"))
    var fields: [String] = []

    @Flag(name: .shortAndLong, help: "Write the status and the header fields before the body.")
    var include = false

    @Flag(name: .shortAndLong, help: "Fail at a status from 400 on, and write no body.")
    var fail = false

    /// Those that the connection adds.
    private static let ownFields: Set = [
        "host", "content-length", "transfer-encoding", "connection", "authorization", "x-smp-appcid", "x-sup-sc",
        "x-sup-domain",
    ]
    private static let largestBody = 32 << 20

    private static func isToken(_ text: some StringProtocol) -> Bool {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7e).contains($0) && !"\"(),/:;<=>?@[\\]{}".utf8.contains($0) }
    }

    func validate() throws {
        guard Self.isToken(method), method == method.uppercased() else {
            throw ValidationError("The method is a word in upper case, such as GET.")
        }
        guard target.hasPrefix("/"), target.utf8.allSatisfy({ (0x21...0x7e).contains($0) }), !target.contains("#")
        else {
            throw ValidationError(
                "The path begins with a slash, has no fragment, and other characters than ASCII are percent-encoded.")
        }
        for field in fields {
            let parts = field.split(separator: ":", maxSplits: 1)
            guard parts.count == 2, Self.isToken(parts[0]), parts[1].utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
            else {
                throw ValidationError("--header takes 'NAME: VALUE'; one is not of that form.")
            }
            guard !Self.ownFields.contains(parts[0].lowercased()) else {
                throw ValidationError("The field \(parts[0]) is the connection's own; remove it.")
            }
        }
    }

    func run() async throws {
        try await CommandContext.run(options) { context throws(ProviderError) in
            let (manager, vault) = try await context.registeredApplication()
            try await context.unlock(vault, of: manager, context.interaction)
            // One request: a script decides what it repeats.
            var request = HTTPRequest(method: .init(rawValue: method), target: target)
            request.followsRedirections = false
            request.maximumResponse = Self.largestBody
            for field in fields {
                let parts = field.split(separator: ":", maxSplits: 1)
                request.headers.add(name: String(parts[0]), value: String(parts[1]).trimmed)
            }
            if ["POST", "PUT", "PATCH"].contains(method), isatty(STDIN_FILENO) == 0 {
                request.body = try InputFile(nil).read(atMost: Self.largestBody)
            }
            let response = try await manager.request(request, context.interaction)
            if fail, response.status >= 400 {
                throw ProviderError(
                    response.status >= 500 ? .unavailable : .rejected,
                    "The server answers \(method) \(target) with the status \(response.status).",
                    nativeCode: response.status)
            }
            guard !options.json else {
                try context.show(ResponseDocument(response)) { "" }
                return .done
            }
            var output: [UInt8] = []
            if include {
                let lines =
                    ["HTTP/1.1 \(response.status)"] + response.headers.map { "\($0.name): \($0.value)" } + ["", ""]
                output += Array(lines.joined(separator: "\r\n").utf8)
            }
            output += response.body
            try Console.print(SecretBytes(copying: output))
            return .done
        }
    }
}

/// The result of `request`.
private struct ResponseDocument: CommandDocument {
    static let kind = "Response"

    struct Field: Encodable {
        let name: String
        let value: String
    }

    let status: Int
    /// In the order of the server; a name may be there twice.
    let headers: [Field]
    /// The body, in base64.
    let body: String

    init(_ response: HTTPResponse) {
        status = response.status
        headers = response.headers.map { Field(name: $0.name, value: $0.value) }
        body = Data(response.body).base64EncodedString()
    }
}
