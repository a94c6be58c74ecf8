import Contracts
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import SwiftASN1
import X509

/// Pairing: an EST enrolment (RFC 7030) whose password is a token.
struct EnrolmentController: Sendable {
    static let maximumRequestSize = 64 * 1024

    let registry: HostRegistry
    let authority: CertificateAuthority
    let authentication: HostAuthentication
    /// Of a host's certificate, in seconds.
    let lifetime: TimeInterval

    func addRoutes(to router: some RouterMethods<ServerContext>) {
        router.resource(".well-known/est/cacerts", [.get]) { _, _ in
            try answer([authority.certificate])
        }
        // No wishes: the key is the host's choice.
        router.resource(".well-known/est/csrattrs", [.get]) { _, _ in Response(status: .noContent) }
        router.resource(".well-known/est/simpleenroll", [.post]) { request, context in
            try await enrol(request, context)
        }
        router.resource(".well-known/est/simplereenroll", [.post]) { request, context in
            try await renew(request, context)
        }
        router.resource("pairing", [.get, .delete]) { request, context in
            guard request.method == .delete else {
                let (_, account) = try await token(of: request, context)
                return .json(.ok, [.init("account", .string(account))])
            }
            let host = try await authentication.host(of: request, context)
            try await registry.unpair(host)
            context.logger.notice("unpaired", metadata: ["host": "\(host.id)", "account": "\(host.account)"])
            return Response(status: .noContent)
        }
    }

    private func enrol(_ request: Request, _ context: ServerContext) async throws -> Response {
        let (token, account) = try await token(of: request, context)
        let csr = try await Self.csr(in: request)
        let certificate = try issue(csr, for: account)
        guard let host = try await registry.pair(withToken: token, certificate) else {
            throw refused(context)
        }
        context.logger.notice("paired", metadata: ["host": "\(host.id)", "account": "\(host.account)"])
        return try answer([certificate])
    }

    private func renew(_ request: Request, _ context: ServerContext) async throws -> Response {
        let host = try await authentication.host(of: request, context)
        let certificate = try issue(await Self.csr(in: request), for: host.account)
        guard try await registry.add(certificate, to: host) else {
            throw HTTPError(.forbidden, message: "This host is no longer paired. Pair it again.")
        }
        context.logger.notice("renewed", metadata: ["host": "\(host.id)", "account": "\(host.account)"])
        return try answer([certificate])
    }

    /// Issues a certificate that names the host by the common name of the CSR, and the account. A host may ask for no other names: its
    /// signatures would bear them.
    private func issue(_ csr: CertificateSigningRequest, for account: String) throws -> Certificate {
        guard csr.publicKey.isValidSignature(csr.signature, for: csr) else {
            throw HTTPError(.badRequest, message: "The signature of the CSR is not its key's.")
        }
        let names = (try? csr.attributes.extensionRequest?.extensions.subjectAlternativeNames) ?? nil
        let subject = csr.subject.flatMap { $0 }
        guard subject.count == 1, subject[0].type == .RDNAttributeType.commonName, let name = String(subject[0].value),
            (1...64).contains(name.utf8.count),
            name.allSatisfy({ $0.isASCII && ($0.isLetter || $0.isNumber || "-.".contains($0)) }),
            names.map({ $0.isEmpty || $0 == CertificateAuthority.names(of: account) }) ?? true
        else {
            throw HTTPError(
                .badRequest,
                message: "The subject of the CSR has to be CN= and the name of the host, without other names.")
        }
        return try authority.issue(
            csr.subject, csr.publicKey, account: account, lifetime: lifetime, at: registry.now())
    }

    private static func csr(in request: Request) async throws -> CertificateSigningRequest {
        guard request.headers[.contentType]?.prefix(while: { $0 != ";" }) == "application/pkcs10" else {
            throw HTTPError(.unsupportedMediaType, message: "The content type is not application/pkcs10.")
        }
        let text = try await request.bytes(upTo: maximumRequestSize).filter { !Array("\r\n\t ".utf8).contains($0) }
        guard let der = Data(base64Encoded: Data(text)),
            let csr = try? CertificateSigningRequest(derEncoded: Array(der))
        else { throw HTTPError(.badRequest, message: "The body is not a CSR in base64.") }
        return csr
    }

    /// The token of HTTP Basic (RFC 7617) with the user name `pairing`, and the account that it pairs with.
    private func token(
        of request: Request, _ context: ServerContext
    ) async throws -> (token: String, account: String) {
        // A client may wait for this answer before it sends the token.
        guard let header = request.headers[.authorization] else { throw Self.unauthorized }
        guard let space = header.firstIndex(of: " "),
            header[..<space].lowercased() == "basic",
            let data = Data(base64Encoded: String(header[space...].drop { $0 == " " })),
            let text = String(data: data, encoding: .utf8), text.hasPrefix("pairing:")
        else { throw refused(context) }
        let token = String(text.dropFirst("pairing:".count))
        guard let account = try await registry.account(ofToken: token) else { throw refused(context) }
        return (token, account)
    }

    private func refused(_ context: ServerContext) -> HTTPError {
        context.warn("pairing token refused")
        return Self.unauthorized
    }

    /// One answer for every mistake.
    private static let unauthorized = HTTPError(
        .unauthorized, headers: [.wwwAuthenticate: #"Basic realm="pairing", charset="UTF-8""#],
        message: "The pairing token is missing, wrong, expired or used. Ask for another one.")

    private func answer(_ certificates: [Certificate]) throws -> Response {
        Response(
            status: .ok,
            headers: [.contentType: CertsOnly.mediaType, .contentTransferEncoding: "base64"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: try CertsOnly.text(certificates))))
    }
}

extension HTTPField.Name {
    /// HTTPTypes has no constant for it.
    fileprivate static var contentTransferEncoding: Self {
        HTTPField.Name("Content-Transfer-Encoding") ?? .contentEncoding
    }
}
