import CertificateProviding
import Foundation
import PEMFileProvider
import TestSupport
import Testing
import X509

/// Files with several identities, and files that are replaced in part.
@Suite(.timeLimit(.minutes(20))) struct SeveralIdentitiesTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    private func pair(_ identity: Identity) throws -> String { try identity.keyPEM + identity.chainPEM }

    private func chosen(_ text: String, _ usage: String = "client") async throws -> X509Certificate {
        let path = try directory.write(text, to: "all.pem")
        return try await PEMFileProvider.testing(["certificate": path, "usage": usage]).fetch().certificate
    }

    @Test("Of several identities in a file, the one is used that fits the usage and is valid, then the last one issued")
    func ofSeveralTheBest() async throws {
        let now = Date()
        let server = try authority.issue("server", for: [.serverAuth])
        let client = try authority.issue("client", notBefore: now - 7200, for: [.clientAuth])
        for text in [try pair(server) + pair(client), try pair(client) + pair(server)] {
            #expect(try await chosen(text) == client.certificate)
            #expect(try await chosen(text, "server") == server.certificate)
        }
        let old = try authority.issue("old", notBefore: now - 7200, notAfter: now - 3600)
        let renewed = try authority.issue("renewed", notBefore: now - 5000)
        let latest = try authority.issue("latest", notBefore: now - 4000)
        let early = try authority.issue("early", notBefore: now + 40_000)
        for order in [[old, renewed, latest, early], [early, latest, renewed, old]] {
            #expect(try await chosen(try order.map(pair).joined()) == latest.certificate)
        }
        // An expired one is better than none.
        #expect(try await chosen(try pair(old)) == old.certificate)
        // One key with two certificates.
        let other = try authority.certify(client.key.publicKey.derRepresentation, as: "later", for: [.serverAuth])
        #expect(try await chosen(try pair(client) + other.pemRepresentation) == client.certificate)
        #expect(try await chosen(try pair(client) + other.pemRepresentation, "server") == other)
    }

    @Test("Of several certificates for keys in a key store, the one is used that fits the usage")
    func inAKeyStore() async throws {
        let environment = ProviderEnvironment.testing(storage: InMemoryStorage())
        let store = try environment.keyStores.store("store:")
        let keys = [
            try await store.make(NewKey(.p256, label: "a"), NoUserInteraction()) { _ in },
            try await store.make(NewKey(.p256, label: "b"), NoUserInteraction()) { _ in },
        ]
        let leaves = [
            try authority.certify(keys[0].publicKey.derRepresentation, as: "server", for: [.serverAuth]),
            try authority.certify(keys[1].publicKey.derRepresentation, as: "client", for: [.clientAuth]),
        ]
        let path = try directory.write(leaves.map(\.pemRepresentation).joined(), to: "web.crt", mode: 0o644)
        for (usage, leaf) in [("server", leaves[0]), ("client", leaves[1])] {
            let provider = try PEMFileProvider.testing(
                ["certificate": path, "key": "store:", "usage": usage], environment)
            #expect(try await provider.fetch().certificate == leaf)
            #expect(try provider.getStoredCertificate()?.certificate == leaf)
        }
    }

    @Test("A directory is told from another one whose name Unicode calls equal")
    func namesThatUnicodeCallsEqual() async throws {
        let (one, two) = (try authority.issue("one"), try authority.issue("two"))
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}")
        try directory.make(composed)
        try directory.make(decomposed)
        try directory.write(one.chainPEM, to: composed + "/c.pem")
        try directory.write(try two.keyPEM, to: composed + "/k.pem")
        try directory.write(try one.keyPEM, to: decomposed + "/k.pem")
        let provider = try PEMFileProvider.testing([
            "certificate": directory[composed + "/c.pem"], "key": directory[decomposed + "/k.pem"],
        ])
        #expect(try await provider.fetch().certificate == one.certificate)
    }

    /// A fault in files that are in use, and the code once it lasts.
    struct Fault: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var code: ProviderError.Code
        var apply: @Sendable (TemporaryDirectory) throws -> Void
    }

    private static func cut(_ name: String) -> @Sendable (TemporaryDirectory) throws -> Void {
        { directory in
            let text = try directory.read(name)
            try directory.write(Array(text.prefix(text.count / 2)), to: name)
        }
    }

    static let faults = [
        Fault(testDescription: "empty certificate", code: .malformedData) { try $0.write("", to: "tls.crt") },
        Fault(testDescription: "empty key", code: .malformedData) { try $0.write("", to: "tls.key") },
        Fault(testDescription: "cut certificate", code: .malformedData, apply: cut("tls.crt")),
        Fault(testDescription: "cut key", code: .malformedData, apply: cut("tls.key")),
        Fault(testDescription: "cut CA", code: .malformedData, apply: cut("ca.crt")),
        Fault(testDescription: "text for a CA", code: .malformedData) { try $0.write("not yet", to: "ca.crt") },
        Fault(testDescription: "missing key", code: .fileNotFound) {
            try FileManager.default.removeItem(atPath: $0["tls.key"])
        },
        Fault(testDescription: "missing certificate", code: .fileNotFound) {
            try FileManager.default.removeItem(atPath: $0["tls.crt"])
        },
    ]

    @Test("Files in use that are written in part, or away, are on their way for a minute", arguments: faults)
    func onTheWay(fault: Fault) async throws {
        let identity = try authority.issue("one")
        let now = BlockingMutex(Date())
        var environment = ProviderEnvironment.testing()
        environment.now = { now.withLock(\.self) }
        try directory.write(identity.chainPEM, to: "tls.crt")
        try directory.write(try identity.keyPEM, to: "tls.key")
        try directory.write(authority.root.pemRepresentation, to: "ca.crt")
        let watched = try PEMFileProvider.testing(["certificate": directory.path], environment)
        _ = try await watched.fetch()
        try fault.apply(directory)
        now.withLock { $0 = Date() }
        // Before the first use, a mistake is a mistake.
        let fresh = try PEMFileProvider.testing(["certificate": directory.path])
        #expect(await code { try await fresh.fetch() } == fault.code)
        let error = failure { try watched.getStoredCertificate() }
        #expect(error?.code == .pending && error?.retryAfter != nil, "\(String(describing: error))")
        #expect(await code { try await watched.fetch() } == .pending)
        now.withLock { $0 = Date() + 120 }
        #expect(failure { try watched.getStoredCertificate() }?.code == fault.code)
        #expect(await code { try await watched.fetch() } == fault.code)
    }

    @Test("A remark says that the file with the chain is beside the certificate")
    func aCertificateWithoutItsChain() async throws {
        let identity = try authority.issue("one")
        try directory.write(try identity.keyPEM, to: "privkey.pem")
        try directory.write(identity.certificate.pemRepresentation, to: "cert.pem")
        let provider = try PEMFileProvider.testing(["certificate": directory["cert.pem"]])
        #expect(await provider.listIdentities().remarks.isEmpty)
        try directory.write(identity.chainPEM, to: "fullchain.pem")
        let remarks = await provider.listIdentities().remarks
        #expect(
            remarks.count == 1 && remarks.first?.contains("set 'certificate' to \(directory["fullchain.pem"])") == true)
        let whole = try PEMFileProvider.testing(["certificate": directory["fullchain.pem"]])
        #expect(await whole.listIdentities().remarks.isEmpty)
    }

    @Test("A path is not a URI")
    func aPathIsNoURI() {
        for name in ["certificate", "key", "trust-bundle"] {
            var parameters = ["certificate": "/a"]
            parameters[name] = "file:/etc/ssl/web.key"
            let error = failure { try PEMFileProvider.testing(parameters) }
            #expect(error?.code == .configurationInvalid && error?.message.contains("without 'file:'") == true)
        }
    }
}
