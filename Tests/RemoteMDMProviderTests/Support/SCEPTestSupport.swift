import CertificateProviding
import Crypto
import CryptoExtras
import Enrolment
import Foundation
import Logging
import ProviderTransport
import SwiftASN1
import Synchronization
import TestSupport

@testable import RemoteMDMProvider

/// Keys, which take a while to be made.
enum TestKeys {
    static let rsa = Result { try make() }
    static let otherRSA = Result { try make() }
    static let p256 = Result { try makeP256() }

    static func makeP256() throws -> SoftwareKey {
        try SoftwareKey(pkcs8: SecretBytes(copying: P256.Signing.PrivateKey().derRepresentation), location: .store)
    }

    static func make() throws -> SoftwareKey {
        let pem = try _RSA.Signing.PrivateKey(keySize: .bits2048).pkcs8PEMRepresentation
        return try SoftwareKey(
            pkcs8: SecretBytes(copying: try PEMDocument(pemString: pem).derBytes), location: .store)
    }
}

/// Passes requests on, and keeps them.
final class RecordingTransport: Sendable {
    private let sent = Mutex<[HTTPRequest]>([])
    private let next: SCEPClient.Transport

    init(_ next: @escaping SCEPClient.Transport) { self.next = next }

    var requests: [HTTPRequest] { sent.withLock(\.self) }
    var operations: [String] {
        requests.map { request in
            let operation = request.target.split(separator: "operation=").last?.split(separator: "&").first ?? ""
            return "\(request.method.rawValue) \(operation)"
        }
    }

    var transport: SCEPClient.Transport {
        { request async throws(ProviderError) in
            self.sent.withLock { $0.append(request) }
            return try await self.next(request)
        }
    }
}

extension SCEPClient {
    static func testing(
        _ configuration: SCEPConfiguration, challenge: String? = SCEPServer.challenge, asked: Counter = Counter(),
        now: @escaping @Sendable () -> Date = { Date() }, transport: @escaping Transport
    ) -> SCEPClient {
        SCEPClient(
            configuration,
            challenge: { _ async throws(ProviderError) in
                asked.increment()
                return challenge.map { SecretBytes(utf8: $0) }
            },
            now: now, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, transport: transport)
    }
}

extension SCEPConfiguration {
    init(trusting certificate: X509Certificate, permitsTripleDES: Bool = false) throws {
        try self.init(
            target: "/scep", fingerprint: certificate.sha256Fingerprint, permitsTripleDES: permitsTripleDES)
    }
}

extension EnrolmentRequest {
    static func testing(
        _ subject: String = "CN=device,O=Example", names: [String] = ["dns:device.example"], key: any IdentityKey,
        current: Identity? = nil, isPending: Bool = false
    ) async throws -> EnrolmentRequest {
        let names = try CertificateRequest.Names(
            subject: subject, subjectAlternativeNames: names.map { try AlternativeName($0) })
        return EnrolmentRequest(
            names: names, csr: try await CertificateRequest(names, key: key), key: key, current: current,
            isPending: isPending)
    }
}

extension EnrolmentAnswer {
    struct NotIssued: Error {}

    /// The certificates, where there are any.
    func certificates() throws -> [X509Certificate] {
        guard case .issued(let certificates, _) = self else { throw NotIssued() }
        return certificates
    }
}

final class Counter: Sendable {
    private let count = Atomic(0)
    var value: Int { count.load(ordering: .relaxed) }
    func increment() { count.add(1, ordering: .relaxed) }
}
