public import CertificateProviding
public import CertificateTLS
public import FoundationEssentials
import NIOHTTP1
public import ProviderTransport

/// The server of contracts over mutual TLS, with the identity of the pairing.
public struct HTTPContractServer: ContractServing {
    private let session: ServerSession
    private let base: String
    private let timeout: Duration
    private let now: @Sendable () -> Date
    private let transport: Transport

    /// - Parameters:
    ///   - timeout: For each request.
    public init(
        _ server: ServerURL, trusting trust: ServerTrust, presenting credentials: TLSCredentials, timeout: Duration,
        transport: Transport = Transport(), now: @escaping @Sendable () -> Date = { Date() }
    ) {
        var security = ServerSecurity(trust: trust, credentials: credentials, now: now)
        security.settingNames = ContractsSettings.names
        session = ServerSession(
            server, security, timeBudget: TimeBudget(timeout, transport.retryPolicy), transport: transport)
        base = server.path.hasSuffix("/") ? String(server.path.dropLast()) : server.path
        (self.timeout, self.now, self.transport) = (timeout, now, transport)
    }

    /// A file without its documents has less.
    private static let maximumAnswer = 100 << 20

    public func hasDocument(_ document: DocumentReference) async throws(ProviderError) -> Bool {
        let response = try await response(to: .head, Self.path(document), expecting: [200, 404])
        return response.status == 200
    }

    public func putDocument(_ content: [UInt8]) async throws(ProviderError) {
        _ = try await response(
            to: .put, Self.path(DocumentReference(of: content)), content, expecting: [200, 201, 204])
    }

    public func document(_ document: DocumentReference) async throws(ProviderError) -> [UInt8] {
        let response = try await response(
            to: .get, Self.path(document), expecting: [200], maximum: ContractVersion.maximumDocument)
        guard DocumentReference(of: response.body) == document else {
            throw ProviderError(
                .protocolError,
                "\(session.server.authority) has sent another document than the one with the SHA-256 \(document.sha256); look for the reason in its log."
            )
        }
        return response.body
    }

    public func put(
        _ version: ContractVersion, after revision: Int?
    ) async throws(ProviderError) -> PutOutcome {
        let condition = revision.map { ("If-Match", "\"\($0)\"") } ?? ("If-None-Match", "*")
        let response = try await response(
            to: .put, "/contracts/\(version.id)", version.json.bytes, condition, expecting: [200, 201, 409])
        let answer = try json(response)
        if response.status == 409 {
            guard answer["contract"] != nil else { return .conflict(nil) }
            let other = try contract(answer)
            guard other.version.id == version.id else { throw malformed("about the contract \(version.id)") }
            return .conflict(other)
        }
        guard let revision = answer["revision"]?.integer, revision >= 0 else { throw malformed("a revision") }
        return .accepted(revision: revision)
    }

    public func changes(
        after cursor: String?, limit: Int
    ) async throws(ProviderError) -> ContractChanges? {
        do throws(ProviderError) { return try await page(after: cursor, limit: limit) } catch {
            // It may be too large for this host.
            guard error.code == .protocolError, limit > 1 else { throw error }
            return try await page(after: cursor, limit: 1)
        }
    }

    private func page(after cursor: String?, limit: Int) async throws(ProviderError) -> ContractChanges? {
        let after = cursor.map { "&after=" + ByteText.percentEncoded($0.utf8) } ?? ""
        let response = try await response(to: .get, "/contracts?limit=\(limit)\(after)", expecting: [200, 410])
        guard response.status == 200 else { return nil }
        do throws(ProviderError) { return try ContractChanges(json: try json(response)) } catch {
            guard error.code == .malformedData else { throw error }
            throw malformed(error.message)
        }
    }

    public func requestCode(_ request: CodeRequest) async throws(ProviderError) {
        _ = try await response(
            to: .post, "/contracts/\(request.contract)/code", request.json.bytes, expecting: [200, 204])
    }

    public func confirmCode(_ code: String, for request: CodeRequest) async throws(ProviderError) -> String {
        var body = request.json
        body.set("code", .string(code))
        let response = try await response(
            to: .post, "/contracts/\(request.contract)/code/confirm", body.bytes, expecting: [200, 403, 410])
        switch response.status {
        case 410: throw ProviderError(.expired, "The code is over; begin again for another one.")
        case 403:
            guard let left = try json(response)["tries_left"]?.integer else {
                throw refusal(response, of: "to confirm a code")
            }
            guard left > 0 else {
                throw ProviderError(
                    .pinLocked, "The code is wrong for the third time, and is over; begin again for another one.")
            }
            throw ProviderError(
                .wrongPassword, "The code is wrong; \(left == 1 ? "one try is" : "\(left) tries are") left.")
        default:
            guard let receipt = try json(response)["receipt"]?.string,
                (1...ContractApproval.maximumReceipt).contains(receipt.utf8.count)
            else { throw malformed("a receipt of the code") }
            return receipt
        }
    }

    /// Asks for nothing but an answer to this identity, and returns the account.
    public func account() async throws(ProviderError) -> String {
        guard
            let account = try json(try await response(to: .get, "/contracts?limit=1", expecting: [200]))["account"]?
                .string
        else { throw malformed("an account") }
        return account
    }

    /// Tells the server that this host is not paired any more.
    public func unpair() async throws(ProviderError) {
        _ = try await response(to: .delete, "/pairing", expecting: [200, 204])
    }

    // MARK: - Requests

    private func response(
        to method: HTTPRequest.Method, _ path: String, _ body: [UInt8] = [], _ condition: (String, String)? = nil,
        expecting statuses: Set<Int>, maximum: Int = maximumAnswer
    ) async throws(ProviderError) -> HTTPResponse {
        var request = HTTPRequest(method: method, target: base + path, body: body, isRepeatable: method != .post)
        if !body.isEmpty {
            let isDocument = path.hasPrefix("/documents/")
            request.headers.add(
                name: "Content-Type", value: isDocument ? "application/octet-stream" : "application/json")
        }
        if let (name, value) = condition { request.headers.add(name: name, value: value) }
        request.maximumResponse = maximum
        let session = session.with(timeBudget: TimeBudget(timeout, transport.retryPolicy))
        let response = try await session.response(to: request)
        guard statuses.contains(response.status) else {
            throw refusal(response, of: "\(method.rawValue) \(path.prefix { $0 != "?" })")
        }
        return response
    }

    private func refusal(_ response: HTTPResponse, of request: String) -> ProviderError {
        if let error = Self.contractRefusal(response, of: request, by: session.server.authority) { return error }
        let isRefused = [401, 403].contains(response.status)
        var error = response.refusal(
            of: "the request \(request)", by: session.server, reason: Self.sentence(of: response).text,
            advice: isRefused ? "pair this host again: contracts pair" : nil, at: now())
        if isRefused { error.reason = .rejectedCertificate }
        return error
    }

    /// The server's sentence, and the member that it is about.
    private static func sentence(of response: HTTPResponse) -> (text: String?, member: String?) {
        let answer = try? JSONValue(parsing: response.body, maximumSize: 65_536)
        return (answer?["error"]?.string, answer?["member"]?.string)
    }

    /// What a refusal says about one contract; `nil` for one that is about something else.
    static func contractRefusal(
        _ response: HTTPResponse, of request: String, by server: String
    ) -> ProviderError? {
        guard [413, 422].contains(response.status) || response.status == 400 && request.hasPrefix("PUT /contracts/")
        else { return nil }
        let (sentence, name) = sentence(of: response)
        let reason = sentence.map { response.excerpt(of: $0, limit: 300) } ?? "it does not say why."
        var member = name.map { "\(response.excerpt(of: $0, limit: 100)): " } ?? ""
        if reason.hasPrefix(member) { member = "" }
        return ProviderError(.malformedData, "\(server) refuses the contract: \(member)\(reason)")
    }

    private func json(_ response: HTTPResponse) throws(ProviderError) -> JSONValue {
        do throws(ProviderError) {
            return try JSONValue(
                parsing: response.body, maximumSize: Self.maximumAnswer, maximumDepth: ContractVersion.maximumDepth)
        } catch {
            throw malformed("JSON: \(error.message)")
        }
    }

    private func contract(_ answer: JSONValue) throws(ProviderError) -> ServerContract {
        guard let revision = answer["revision"]?.integer, let contract = answer["contract"] else {
            throw malformed("a revision and a contract")
        }
        return ServerContract(revision: revision, version: try version(contract))
    }

    private func version(_ json: JSONValue) throws(ProviderError) -> ContractVersion {
        do throws(ProviderError) { return try ContractVersion(json: json) } catch {
            let id = json["id"]?.string.map { " \(DisplayText.visible(String($0.prefix(64))))" } ?? ""
            throw malformed("a valid contract\(id): \(error.message)")
        }
    }

    private func malformed(_ expected: String) -> ProviderError {
        let expected = expected.hasSuffix(".") ? String(expected.dropLast()) : expected
        return ProviderError(
            .protocolError,
            "The answer of \(session.server.authority) is not \(expected); look for the reason in the server's log.")
    }

    private static func path(_ document: DocumentReference) -> String { "/documents/\(document.sha256)" }
}
