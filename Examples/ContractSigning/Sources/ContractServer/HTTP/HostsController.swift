import CertificateProviding
import Contracts
import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// What paired hosts ask for: documents, contracts, codes.
struct HostsController: Sendable {
    /// Of the JSON of a contract, whose documents are references.
    static let maximumContractSize = 80 << 20

    let book: ContractBook
    let authentication: HostAuthentication
    let notifier: (any CodeNotifying)?

    func addRoutes(to router: some RouterMethods<ServerContext>) {
        router.resource("documents/:digest", [.get, .head, .put]) { request, context in
            let host = try await authentication.host(of: request, context)
            return try await document(request, context, host)
        }
        router.resource("contracts", [.get]) { request, context in
            let host = try await authentication.host(of: request, context)
            return try await changes(request, host)
        }
        router.resource("contracts/:id", [.put]) { request, context in
            let host = try await authentication.host(of: request, context)
            return try await put(request, try Self.id(context), host, context)
        }
        router.resource("contracts/:id/code", [.post]) { request, context in
            let host = try await authentication.host(of: request, context)
            let id = try Self.id(context)
            return try await logged("code sent", id, host, context) { try await makeCode(request, id, host) }
        }
        router.resource("contracts/:id/code/confirm", [.post]) { request, context in
            let host = try await authentication.host(of: request, context)
            let id = try Self.id(context)
            return try await logged("code confirmed", id, host, context) { try await confirmCode(request, id, host) }
        }
    }

    // MARK: Documents

    private func document(_ request: Request, _ context: ServerContext, _ host: Host) async throws -> Response {
        let digest = try context.parameters.require("digest")
        guard DocumentReference.isDigest(digest) else {
            throw HTTPError(.notFound, message: "The name of a document is its SHA-256 in lower-case hexadecimal.")
        }
        if request.method == .put { return try await putDocument(request, digest, host) }
        let missing = HTTPError(.notFound, message: "There is no document \(digest) of this account.")
        var headers: HTTPFields = [.contentType: "application/octet-stream", .xContentTypeOptions: "nosniff"]
        guard request.method == .get else {
            guard let size = try await book.sizeOfDocument(digest, of: host.account) else { throw missing }
            headers[.contentLength] = "\(size)"
            return Response(status: .ok, headers: headers)
        }
        guard let content = try await book.document(digest, of: host.account) else { throw missing }
        return Response(
            status: .ok, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(bytes: content)))
    }

    private func putDocument(_ request: Request, _ digest: String, _ host: Host) async throws -> Response {
        let content = try await request.bytes(upTo: ContractBook.maximumDocumentSize)
        guard DocumentReference(of: content).sha256 == digest else {
            throw Refusal(.invalid(member: nil), "The SHA-256 of the body is not \(digest).")
        }
        let isNew = try await book.putDocument(content, for: host.account)
        return Response(status: isNew ? .created : .noContent)
    }

    // MARK: Contracts

    private func changes(_ request: Request, _ host: Host) async throws -> Response {
        let limit = try request.queryParameter("limit").map { Int($0) } ?? 50
        guard let limit, (1...500).contains(limit) else {
            throw HTTPError(.badRequest, message: "limit is a number from 1 to 500.")
        }
        guard
            let changes = try await book.changes(
                of: host.account, after: try request.queryParameter("after"), limit: limit)
        else {
            throw HTTPError(.gone, message: "The cursor is forgotten. Ask for all contracts, without one.")
        }
        return .json(
            .ok,
            [
                .init("account", .string(changes.account)), .init("cursor", .string(changes.cursor)),
                .init("more", .bool(changes.hasMore)),
                .init("contracts", .array(changes.contracts.map { .object($0.members) })),
            ])
    }

    private func put(
        _ request: Request, _ id: String, _ host: Host, _ context: ServerContext
    ) async throws -> Response {
        let revision = try Self.condition(of: request)
        let body = try await request.bytes(upTo: Self.maximumContractSize)
        let version: ContractVersion
        do throws(ProviderError) {
            let json = try JSONValue(
                parsing: body, maximumSize: Self.maximumContractSize, maximumDepth: ContractVersion.maximumDepth)
            version = try ContractVersion(json: json, id: id)
        } catch {
            // Malformed JSON and too much of it are the fault of this contract alone.
            throw Refusal(error)
        }
        let answer = try await book.put(version, of: host.account, after: revision)
        context.logger.info(
            answer.outcome.isAccepted ? "contract received" : "contract in conflict",
            metadata: Self.metadata(id, host).merging(["state": "\(version.state)"]) { $1 })
        let account = JSONValue.Member("account", .string(host.account))
        switch answer.outcome {
        case .accepted(let revision):
            return .json(
                answer.isNew ? .created : .ok, [account, .init("revision", .number("\(revision)"))],
                headers: [.eTag: "\"\(revision)\""])
        case .conflict(let current):
            var members = [
                account,
                .init("error", .string("The server has another version, or a state that this one may not follow.")),
            ]
            if let current {
                members.append(.init("revision", .number("\(current.revision)")))
                members.append(.init("contract", current.version.json))
            }
            return .json(.conflict, members)
        }
    }

    /// - Returns: The revision of `If-Match`; `nil` for `If-None-Match: *`.
    private static func condition(of request: Request) throws -> Int? {
        switch (request.headers[.ifMatch], request.headers[.ifNoneMatch]) {
        case (nil, nil):
            throw HTTPError(
                .preconditionRequired, message: #"One of If-None-Match: * and If-Match: "REVISION" is needed."#)
        case (nil, "*"): return nil
        case (let text?, nil):
            guard text.hasPrefix("\""), text.hasSuffix("\""), let revision = Int(text.dropFirst().dropLast()) else {
                fallthrough
            }
            return revision
        default:
            throw HTTPError(
                .badRequest, message: #"The condition is neither If-None-Match: * nor If-Match: "REVISION"."#)
        }
    }

    // MARK: Codes

    private func makeCode(_ request: Request, _ id: String, _ host: Host) async throws -> Response {
        let json = try await request.json(upTo: 4096)
        guard let notifier else { throw Refusal(.noNotifier, "The server has no notifier, and can send no codes.") }
        try await book.makeCode(try Self.codeRequest(json, id), of: host.account, notifier: notifier)
        return Response(status: .noContent)
    }

    private func confirmCode(_ request: Request, _ id: String, _ host: Host) async throws -> Response {
        let json = try await request.json(upTo: 4096)
        let receipt = try await book.confirmCode(
            try json.required("code"), for: try Self.codeRequest(json, id), of: host.account)
        return .json(.ok, [.init("receipt", .string(receipt))])
    }

    private static func codeRequest(_ json: JSONValue, _ id: String) throws(Refusal) -> CodeRequest {
        do throws(ProviderError) { return try CodeRequest(json: json, contract: id) } catch { throw Refusal(error) }
    }

    private func logged(
        _ message: Logger.Message, _ id: String, _ host: Host, _ context: ServerContext,
        _ work: () async throws -> Response
    ) async throws -> Response {
        do {
            let response = try await work()
            context.logger.info(message, metadata: Self.metadata(id, host))
            return response
        } catch let refusal as Refusal {
            let reason: Logger.Metadata = ["reason": "\(DisplayText.visible(refusal.message))"]
            context.logger.info("code refused", metadata: Self.metadata(id, host).merging(reason) { $1 })
            throw refusal
        }
    }

    private static func metadata(_ id: String, _ host: Host) -> Logger.Metadata {
        ["account": "\(host.account)", "contract": "\(id)", "host": "\(host.id)"]
    }

    private static func id(_ context: ServerContext) throws -> String {
        let id = try context.parameters.require("id")
        guard ContractVersion.isID(id) else {
            throw HTTPError(.notFound, message: "The name of a contract is a UUID in lower case.")
        }
        return id
    }
}

extension JSONValue {
    /// The text of a member.
    func required(_ name: String) throws(Refusal) -> String {
        guard let text = self[name]?.string else { throw .invalid(name, "is missing, or no text") }
        return text
    }
}

extension PutOutcome {
    fileprivate var isAccepted: Bool { if case .accepted = self { true } else { false } }
}

extension ServerContract {
    /// Those of the version, and `revision`.
    fileprivate var members: [JSONValue.Member] {
        var json = version.json
        json.set("revision", .number("\(revision)"))
        guard case .object(let members) = json else { return [] }
        return members
    }
}
