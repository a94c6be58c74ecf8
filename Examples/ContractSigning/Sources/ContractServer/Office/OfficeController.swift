import CertificateProviding
import Contracts
import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// What a back office asks for, with its `j_token`: the vendor's call for a token, and the calls that put contracts in and get
/// them back.
struct OfficeController: Sendable {
    /// Of a token call.
    static let maximumRequestSize = 16 * 1024
    static let maximumFileSize = 80 << 20
    static let maximumTokenLifetime: TimeInterval = 86_400

    let seeds: Seeds
    let registry: HostRegistry
    let book: ContractBook

    func addRoutes(to router: some RouterMethods<ServerContext>) {
        router.resource("calinda/hub/createTemporaryToken.action", [.post]) { request, context in
            try authenticate(request, context)
            return try await makeToken(request, context)
        }
        router.resource("calinda/hub/pairings", [.delete]) { request, context in
            try authenticate(request, context)
            return try await unpair(request, context)
        }
        router.resource("calinda/hub/contracts", [.post]) { request, context in
            try authenticate(request, context)
            return try await add(request, context)
        }
        router.resource("calinda/hub/contracts/:id", [.get, .put, .delete]) { request, context in
            try authenticate(request, context)
            let id = try context.parameters.require("id")
            switch request.method {
            case .get: return try await show(id)
            case .put: return try await replace(request, id, context)
            default:
                let account = try await book.delete(id)
                context.logger.info("contract deleted", metadata: ["account": "\(account)", "contract": "\(id)"])
                return Response(status: .noContent)
            }
        }
        router.resource("calinda/hub/contracts/:id/:part", [.get, .post]) { request, context in
            try authenticate(request, context)
            let (id, part) = (try context.parameters.require("id"), try context.parameters.require("part"))
            return request.method == .get
                ? try await signatureDocument(part, of: id) : try await apply(part, to: id, context)
        }
    }

    /// `j_token` is a header field, or a parameter of the query.
    private func authenticate(_ request: Request, _ context: ServerContext) throws {
        let header = HTTPField.Name("j_token").flatMap { request.headers[values: $0] } ?? []
        let given = header + [try request.queryParameter("j_token")].compactMap { $0 }
        guard let first = given.first, given.allSatisfy({ $0 == first }), seeds.contains(first) else {
            context.warn("j_token refused", ["reason": given.isEmpty ? "missing" : "wrong"])
            throw HTTPError(.unauthorized, message: "The j_token is missing or wrong.")
        }
    }

    // MARK: Tokens

    private func makeToken(_ request: Request, _ context: ServerContext) async throws -> Response {
        let json = try await request.json(upTo: Self.maximumRequestSize)
        guard let email = json["email"]?.string else {
            throw HTTPError(.badRequest, message: "email is missing, or no text.")
        }
        guard let time = json["time"]?.integer else {
            throw HTTPError(
                .badRequest, message: "time is missing, or no whole number of milliseconds since 1970 in UTC.")
        }
        let expiry = try expiry(time)
        guard registry.accounts.contains(email) else {
            throw Self.noAccount(email)
        }
        let token = try await registry.makeToken(for: email, until: expiry)
        context.logger.notice("token made", metadata: ["account": "\(email)"])
        guard Self.wantsJSON(request) else { return .text(.ok, token) }
        return .json(.ok, [.init("token", .object([.init("token", .string(token))]))])
    }

    private func expiry(_ time: Int) throws -> Date {
        let now = registry.now()
        let seconds = now.timeIntervalSince1970
        // In milliseconds it is the time of the early seventies.
        guard Double(time) > seconds * 1000 || !(seconds / 2...seconds * 2).contains(Double(time)) else {
            throw HTTPError(.badRequest, message: "time is in seconds. It has to be in milliseconds since 1970 in UTC.")
        }
        let expiry = Date(timeIntervalSince1970: Double(time) / 1000)
        guard expiry > now else { throw HTTPError(.badRequest, message: "time is past: the token would be expired.") }
        guard expiry <= now + Self.maximumTokenLifetime else {
            throw HTTPError(.badRequest, message: "time is more than a day ahead. A token lives for a day at most.")
        }
        return expiry
    }

    private func unpair(_ request: Request, _ context: ServerContext) async throws -> Response {
        guard let email = try request.queryParameter("email") else {
            throw HTTPError(.badRequest, message: "The parameter email is missing.")
        }
        let count = try await registry.unpairAll(of: email)
        // An account that is gone may have had some.
        guard count > 0 || registry.accounts.contains(email) else { throw Self.noAccount(email) }
        context.logger.notice("unpaired", metadata: ["account": "\(email)", "hosts": "\(count)"])
        return .json(.ok, [.init("hosts", .number("\(count)"))])
    }

    private static func wantsJSON(_ request: Request) -> Bool {
        (request.headers[.accept] ?? "").split(separator: ",").contains {
            $0.prefix { $0 != ";" }.trimmingCharacters(in: .whitespaces).lowercased() == "application/json"
        }
    }

    // MARK: Contracts

    private func add(_ request: Request, _ context: ServerContext) async throws -> Response {
        guard let email = try request.queryParameter("email") else {
            throw HTTPError(.badRequest, message: "The parameter email is missing.")
        }
        guard registry.accounts.contains(email) else {
            throw Self.noAccount(email)
        }
        let file = try await file(in: request)
        let contract = try await book.add(file.content, file.documents, for: email)
        Self.log("contract put in", contract, context)
        return .json(
            .created, summary(contract), headers: [.location: "/calinda/hub/contracts/\(contract.version.id)"])
    }

    private func replace(_ request: Request, _ id: String, _ context: ServerContext) async throws -> Response {
        let file = try await file(in: request)
        let contract = try await book.replace(id, file.content, file.documents)
        Self.log("contract replaced", contract, context)
        return .json(.ok, summary(contract))
    }

    private func file(in request: Request) async throws -> ContractFile {
        let bytes = try await request.bytes(upTo: Self.maximumFileSize)
        do {
            return try await ContractFile.read(bytes)
        } catch {
            guard error.code != .operationNotAllowed else {
                throw Refusal.invalid("options", "a template has to be made a PDF before it comes here")
            }
            throw Refusal(error)
        }
    }

    private func apply(_ part: String, to id: String, _ context: ServerContext) async throws -> Response {
        let events: [String: ContractEvent] = ["validate": .validated, "archive": .archived, "abandon": .abandoned]
        guard let event = events[part] else { throw Self.noPart }
        let contract = try await book.apply(event, to: id)
        Self.log("contract \(contract.version.state)", contract, context)
        return .json(.ok, summary(contract))
    }

    private static func log(
        _ message: Logger.Message, _ contract: ContractBook.OfficeContract, _ context: ServerContext
    ) {
        context.logger.info(
            message,
            metadata: [
                "account": "\(contract.account)", "contract": "\(contract.version.id)",
                "state": "\(contract.version.state)",
            ])
    }

    private func show(_ id: String) async throws -> Response {
        let contract = try await book.contract(id)
        let content = contract.version.content
        let documents = try await book.documents(content.documents, of: contract.account)
        var members = summary(contract)
        for name in ["approvals", "abandonment"] {
            if let value = contract.version.json[name] { members.append(.init(name, value)) }
        }
        members.append(.init("file", try content.originalFile { documents[$0] ?? [] }))
        return .json(.ok, members)
    }

    private func signatureDocument(_ part: String, of id: String) async throws -> Response {
        let contract = try await book.contract(id)
        let approvals = contract.version.approvals
        var (reference, type) = (approvals.last?.pdf, "application/pdf")
        if part != "signed.pdf" {
            // Of the last approval, or evidence-1.json and so on of each.
            guard let match = part.wholeMatch(of: /evidence(-[1-9][0-9]?)?\.(json|p7s)/) else { throw Self.noPart }
            let number = match.1.flatMap { Int($0.dropFirst()) } ?? approvals.count
            let approval = approvals.dropFirst(max(number - 1, 0)).first
            (reference, type) =
                match.2 == "json"
                ? (approval?.evidence, "application/json")
                : (approval?.evidenceSignature, "application/pkcs7-signature")
        }
        guard let reference, let content = try await book.document(reference.sha256, of: contract.account) else {
            throw Refusal(
                .notFound, "The contract \(contract.version.id) is \(contract.version.state), and has no signature.")
        }
        return Response(
            status: .ok, headers: [.contentType: type, .xContentTypeOptions: "nosniff"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: content)))
    }

    private func summary(_ contract: ContractBook.OfficeContract) -> [JSONValue.Member] {
        let members: [JSONValue.Member] = [
            .init("id", .string(contract.version.id)), .init("account", .string(contract.account)),
            .init("state", .string(contract.version.state.rawValue)),
            .init("missing", .array(contract.version.content.missing.map { .string($0) })),
            .init("signatories", .number("\(contract.version.content.signatories.count)")),
            .init("approved", .number("\(contract.version.approvals.count)")),
            .init("hosts", .bool(contract.isShared)),
        ]
        guard !contract.isShared else { return members }
        let note =
            "Hosts do not get this contract: contract.keep_on_move is not true. Put it in with PUT again, with it."
        return members + [.init("note", .string(note))]
    }

    private static func noAccount(_ email: String) -> HTTPError {
        HTTPError(.notFound, message: "There is no account \(DisplayText.visible(email)).")
    }

    private static let noPart = HTTPError(.notFound, message: "A contract has no such part.")
}
