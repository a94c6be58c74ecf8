import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Logging
import NIOCore
import Testing
import X509

@testable import PlatformServer

/// Believes what a request says of itself.
struct TestAuthenticator: Authenticator {
    func authenticate(_ request: Request, on channel: any Channel) async throws -> Authentication {
        guard let name = request.headers["X-Test-Principal"] else { throw HTTPError(.unauthorized) }
        return Authentication(principal: Principal(user: name))
    }
}

/// A server whose database is in a directory of its own.
struct TestServer {
    let store: ConnectionStore
    let server: PlatformServer

    init(
        directory: TemporaryDirectory, policy: PasswordPolicy = PasswordPolicy(),
        now: @Sendable @escaping () -> Date = { Date() }
    ) throws {
        store = try ConnectionStore(directory: directory.path)
        server = PlatformServer(
            applications: ["demo", "other"], pathPrefix: "", store: store, writer: try AtomEntryWriter(policy: policy),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, now: now)
    }

    func test<Value>(
        authenticatedBy authenticator: any Authenticator = TestAuthenticator(), administrators: Set<String> = [],
        _ body: @Sendable (any TestClientProtocol) async throws -> Value
    ) async throws -> Value {
        let page = try ConnectionsPage(administrators: administrators, store: store)
        let router = server.router(authenticatedBy: authenticator, page: page)
        return try await Application(router: router, logger: server.logger).test(.router, body)
    }
}

/// Is removed with the last reference to it.
final class TemporaryDirectory: Sendable {
    let path = FileManager.default.temporaryDirectory.appending(path: "platform-server-\(UUID())").path
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

extension TestClientProtocol {
    /// Sends a request to the collection of connections of the application `demo`.
    func send(
        _ method: String = "GET", id: String? = nil, as principal: String? = "alice", body: String? = nil,
        path: String = "/odata/applications/latest/demo/Connections",
        type: String? = "application/atom+xml; charset=UTF-8", headers: HTTPFields = [:]
    ) async throws -> TestResponse {
        var headers = headers
        headers["X-SMP-APPCID"] = id
        headers["X-Test-Principal"] = principal
        headers[.contentType] = type
        return try await execute(
            uri: path, method: try #require(HTTPRequest.Method(method)), headers: headers,
            body: body.map { ByteBuffer(string: $0) })
    }
}

extension TestResponse {
    var text: String { String(buffer: body) }
}

func entry(_ properties: String = "") -> String {
    """
    <entry xmlns="http://www.w3.org/2005/Atom" xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"
        xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices">
    <category term="applications.Connection" scheme="http://schemas.microsoft.com/ado/2007/08/dataservices/scheme"/>
    <content type="application/xml"><m:properties>\(properties)</m:properties></content></entry>
    """
}

/// A self-signed certificate. The tests need no chain.
func certificate(
    subject: DistinguishedName, notValidBefore: Date = Date() - 60, notValidAfter: Date = Date() + 3600
) throws -> Certificate {
    let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
    return try Certificate(
        version: .v3, serialNumber: Certificate.SerialNumber(), publicKey: key.publicKey,
        notValidBefore: notValidBefore, notValidAfter: notValidAfter, issuer: subject, subject: subject,
        signatureAlgorithm: .ecdsaWithSHA256, extensions: Certificate.Extensions(), issuerPrivateKey: key)
}
