import CertificateProviding
import Contracts
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Logging
import NIOCore
import Signing
import SwiftASN1
import Synchronization
import Testing
import X509

@testable import ContractServer

/// A clock that is turned by hand.
final class TestClock: Sendable {
    private let time = Mutex(Date(timeIntervalSince1970: 1_800_000_000))

    var now: @Sendable () -> Date { { self.time.withLock { $0 } } }

    func advance(_ seconds: TimeInterval) { time.withLock { $0 += seconds } }
}

/// Is removed with the last reference to it.
final class TemporaryDirectory: Sendable {
    let path = FileManager.default.temporaryDirectory.appending(path: "contract-server-\(UUID())").path
    init() throws {
        try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
    }
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// Keeps what it is told.
final class TestNotifier: CodeNotifying {
    private let notices = Mutex<[CodeNotice]>([])

    func notify(_ notice: CodeNotice) { notices.withLock { $0.append(notice) } }

    var all: [CodeNotice] { notices.withLock { $0 } }
}

/// Keeps all lines of a log.
final class TestLog: Sendable {
    private let text = Mutex("")

    var all: String { text.withLock { $0 } }

    var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: TestLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let all = metadata.merging(event.metadata ?? [:]) { $1 }
            log.text.withLock { $0 += "\(event.level) \(event.message) \(all)\n" }
        }
    }
}

/// Believes what a request says of its certificate.
struct TestCertificates: ClientCertificates {
    static let field = HTTPField.Name("X-Test-Fingerprint")

    func fingerprint(of request: Request, on channel: any Channel) -> String? {
        Self.field.flatMap { request.headers[$0] }
    }
}

/// A server in memory, without TLS.
struct TestServer {
    static let (alice, bob) = ("alice@example.com", "bob@example.com")
    static let seed = "a seed of a test +/=&"

    let clock = TestClock()
    let notifier = TestNotifier()
    let log = TestLog()
    let server: ContractServer

    init(evidence: any EvidenceChecking = NoEvidenceCheck(), hasNotifier: Bool = true) throws {
        let database = try ServerDatabase()
        let registry = HostRegistry(database, accounts: Accounts([Self.alice, Self.bob]), now: clock.now)
        server = ContractServer(
            book: try ContractBook(database, evidence: evidence, now: clock.now), registry: registry,
            authority: try CertificateAuthority(at: clock.now()), seeds: Seeds([Self.seed]),
            notifier: hasNotifier ? notifier : nil, certificateLifetime: 3600, logger: log.logger)
    }

    var book: ContractBook { server.book }
    var registry: HostRegistry { server.registry }

    func test<Value>(_ body: @Sendable (any TestClientProtocol) async throws -> Value) async throws -> Value {
        try await Application(router: server.router(certificates: TestCertificates()), logger: log.logger)
            .test(.router, body)
    }

    /// Pairs a host, and returns the fingerprint of its certificate.
    func host(_ account: String = TestServer.alice) async throws -> String {
        HostRegistry.fingerprint(try await pairedCertificate(account))
    }

    /// Pairs a host, and returns its certificate in DER.
    func pairedCertificate(_ account: String = TestServer.alice) async throws -> [UInt8] {
        let token = try await server.registry.makeToken(for: account, until: clock.now() + 60)
        let certificate = try server.authority.issue(
            DistinguishedName { CommonName("host") }, Certificate.PrivateKey(P256.Signing.PrivateKey()).publicKey,
            account: account, lifetime: 3600, at: clock.now())
        _ = try #require(try await server.registry.pair(withToken: token, certificate))
        return try certificate.derRepresentation
    }
}

extension TestClientProtocol {
    func send(
        _ method: HTTPRequest.Method, _ uri: String, as fingerprint: String? = nil, seed: String? = nil,
        _ headers: HTTPFields = [:], body: [UInt8]? = nil
    ) async throws -> TestResponse {
        var headers = headers
        if let fingerprint { headers[try #require(TestCertificates.field)] = fingerprint }
        if let seed { headers[try #require(HTTPField.Name("j_token"))] = seed }
        return try await execute(uri: uri, method: method, headers: headers, body: body.map { ByteBuffer(bytes: $0) })
    }
}

extension TestResponse {
    var text: String { String(buffer: body) }
    var json: JSONValue { get throws { try JSONValue(parsing: Array(buffer: body), maximumDepth: 18) } }
    /// The sentence of an error.
    var error: String { get throws { try json["error"]?.string ?? "" } }
}

/// Contracts and their documents.
enum Fixture {
    static func pdf(_ name: String = "1") -> [UInt8] { Files.pdf(name) }

    static func content(
        _ pdf: [UInt8] = pdf(), number: String = "C-1", mode: Int = 2, isKeptOnMove: Bool = false,
        firstName: String? = "Alice", attachment: [UInt8]? = nil, contractors: [String] = []
    ) throws -> ContractContent {
        func field(_ key: String, _ value: String) -> JSONValue {
            .object([.init("key", .string(key)), .init("value", .string(value))])
        }
        var fields = [
            field("lastname", "Liddell"), field("cellPhone", "+33 6 12 34 56 78"), field("email", "alice@example.org"),
        ]
        if let firstName { fields.append(field("firstname", firstName)) }
        let people = contractors.map { name in
            JSONValue.object([
                .init("number", .string(name)), .init("mode", .number("\(mode)")),
                .init(
                    "fields",
                    .array([
                        field("firstname", name), field("lastname", "Curie"), field("cellPhone", "+33 7 00 00 00 01"),
                        field("email", "\(name)@example.org"),
                    ])),
            ])
        }
        let path = JSONValue.string(DocumentReference(of: pdf).placeholder(type: "application/pdf"))
        var file: [JSONValue.Member] = [
            .init(
                "customer",
                .object([
                    .init("number", .string(number)), .init("mode", .number("\(mode)")),
                    .init("contractor_id", .number("-1")),
                    .init("fields", .array(fields)),
                ])),
            .init("contractors", .array(people)),
            .init(
                "contract",
                .object([
                    .init("contract_definition_id", .number("7")), .init("contract_id", .number("-1")),
                    .init("pdf_file_name", .string("contract.pdf")), .init("pdf_file_path", path),
                    .init("keep_on_move", .bool(isKeptOnMove)),
                ])),
        ]
        if let attachment {
            let path = DocumentReference(of: attachment).placeholder(type: "text/plain")
            file.append(
                .init(
                    "files",
                    .array([
                        .object([
                            .init("path", .string(path)), .init("name", .string("a.txt")),
                            .init("type", .string("text/plain")),
                        ])
                    ])))
        }
        return try ContractContent(.object(file))
    }

    /// Documents that stand for a signature, where the evidence is not checked.
    static let signatureDocuments: [[UInt8]] = [pdf() + [1], Array("{}".utf8), [0x30, 0x00]]

    /// An approval of the customer.
    static func approval(receipts: [String] = []) throws -> ContractApproval {
        let documents = signatureDocuments.map { DocumentReference(of: $0) }
        return ContractApproval(
            signatory: 0, approved: Date(timeIntervalSince1970: 1_799_999_999), receipts: receipts,
            certificate: try certificate.get(), pdf: documents[0], evidence: documents[1],
            evidenceSignature: documents[2])
    }

    /// That of a person, which nothing vouches for.
    private static let certificate = Result { Data(try signer().identity.certificate.derRepresentation) }

    /// A person with a certificate of its own, which nothing vouches for.
    static func signer(_ name: String = "signer") throws -> Signer {
        let key = P256.Signing.PrivateKey()
        let subject = try DistinguishedName { CommonName(name) }
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: .init(key.publicKey), notValidBefore: Date() - 60,
            notValidAfter: Date() + 3600, issuer: subject, subject: subject, extensions: .init(),
            issuerPrivateKey: .init(key))
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        let identity = try Identity(
            certificateChain: [X509Certificate(derRepresentation: serializer.serializedBytes)],
            key: SoftwareKey(pkcs8: SecretBytes(copying: Array(key.derRepresentation)), location: .file),
            provenance: .init(provider: ProviderID("test")))
        return try Signer(identity)
    }

    static func id() -> String { UUID().uuidString.lowercased() }

    /// A version in a state, with content and signature that fit it.
    static func version(_ state: ContractState, id: String = id(), number: String = "C-1") throws -> ContractVersion {
        ContractVersion(
            id: id, state: state,
            content: try content(number: number, firstName: state == .incomplete ? nil : "Alice"),
            approvals: state.isSigned ? [try approval()] : [])
    }

    static func putDocuments(_ book: ContractBook, _ account: String = TestServer.alice) async throws {
        for document in [pdf()] + signatureDocuments { _ = try await book.putDocument(document, for: account) }
    }
}

/// Returns the refusal of a call; `nil` if it succeeds.
func refusal(_ body: () async throws -> Void) async throws -> Refusal? {
    do {
        try await body()
        return nil
    } catch let refusal as Refusal {
        return refusal
    }
}
