import CertificateProviding
import CertprovKit
import Foundation
import Glibc
import Logging
import PEMFileProvider
import ServiceLifecycle
import TestSupport
import Testing

/// A running service takes what another program writes.
@Suite(.timeLimit(.minutes(20))) struct SourceWatchTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority
    private let log = TestLog()

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    private func service(
        _ properties: [String], looks: Looks = Looks(),
        _ body: (CertprovLogon, RotatingCredentials) async throws -> Void
    ) async throws {
        try await withService(properties, in: directory, log, looks: looks, body)
    }

    private func leaf(_ credentials: RotatingCredentials) -> X509Certificate {
        credentials.current.identity.certificate
    }

    private func put(_ identity: Identity) throws {
        try directory.write(identity.chainPEM, to: "tls.crt")
        try directory.write(try identity.keyPEM, to: "tls.key")
    }

    private func pem(_ certificate: String) -> [String] {
        ["CertificateProvider = pem", "CertificateProvider.pem.certificate = \(certificate)"]
    }

    @Test(
        "Files that are replaced by rename, one after the other, are taken when they fit, and nothing is refused meanwhile"
    )
    func byRename() async throws {
        let identities = try ["one", "two", "three"].map { try authority.issue($0) }
        try put(identities[0])
        try await service(pem(directory.path)) { _, credentials in
            #expect(leaf(credentials) == identities[0].certificate)
            for (index, identity) in identities.enumerated().dropFirst() {
                // By turns the key first, and the certificate first.
                let files = [("tls.key", try identity.keyPEM), ("tls.crt", identity.chainPEM)]
                for (name, text) in index == 1 ? files : files.reversed() {
                    #expect(leaf(credentials) == identities[index - 1].certificate)
                    try directory.rename(text, to: name)
                }
                try await eventually { leaf(credentials) == identity.certificate }
            }
            #expect(log.warnings.isEmpty, "\(log.warnings)")
        }
    }

    @Test("The switch of a volume of Kubernetes is taken, with its CA")
    func byTheSwitchOfAVolume() async throws {
        let other = try TestAuthority("Other")
        let versions = [(try authority.issue("one"), authority), (try other.issue("two"), other)]
        for (number, version) in versions.enumerated() {
            try directory.make("volume/..\(number)")
            try directory.write(version.0.chainPEM, to: "volume/..\(number)/tls.crt")
            try directory.write(try version.0.keyPEM, to: "volume/..\(number)/tls.key")
            try directory.write(version.1.root.pemRepresentation, to: "volume/..\(number)/ca.crt")
        }
        try directory.link("volume/..data", to: "..0")
        for name in ["tls.crt", "tls.key", "ca.crt"] { try directory.link("volume/\(name)", to: "..data/\(name)") }
        try await service(pem(directory["volume"])) { logon, credentials in
            #expect(credentials.current.identity.trust == TrustBundle([authority.root]))
            try directory.link("volume/..data", to: "..1")
            try await eventually { leaf(credentials) == versions[1].0.certificate }
            #expect(credentials.current.identity.trust == TrustBundle([other.root]))
            // The CA alone.
            try directory.write(
                authority.root.pemRepresentation + other.root.pemRepresentation, to: "volume/..1/ca.crt")
            try await eventually { credentials.current.identity.trust == TrustBundle([authority.root, other.root]) }
        }
    }

    @Test(
        "The links of certbot and files that are written in place are taken; a volume that is away for a while is no failure"
    )
    func byLinksAndInPlace() async throws {
        let identities = try ["one", "two", "three", "four"].map { try authority.issue($0) }
        try directory.make("archive")
        try directory.make("live")
        for (number, identity) in identities.enumerated() {
            try directory.write(identity.chainPEM, to: "archive/fullchain\(number).pem")
            try directory.write(try identity.keyPEM, to: "archive/privkey\(number).pem")
        }
        func link(_ number: Int) throws {
            for name in ["privkey", "fullchain"] {
                try directory.link("live/\(name).pem", to: "../archive/\(name)\(number).pem")
            }
        }
        try link(0)
        try await service(pem(directory["live"])) { _, credentials in
            try link(1)
            try await eventually { leaf(credentials) == identities[1].certificate }
            try directory.write(try identities[2].keyPEM, to: "archive/privkey1.pem")
            try directory.write(identities[2].chainPEM, to: "archive/fullchain1.pem")
            try await eventually { leaf(credentials) == identities[2].certificate }
            #expect(Glibc.rename(directory["live"], directory["away"]) == 0)
            try await Task.sleep(for: .milliseconds(20))
            #expect(Glibc.rename(directory["away"], directory["live"]) == 0)
            try link(3)
            try await eventually { leaf(credentials) == identities[3].certificate }
        }
    }

    @Test("A pair that never fits is logged, the last good one stays, and a pair that fits is taken at once then")
    func aPairThatNeverFits() async throws {
        let identities = try ["one", "two", "three"].map { try authority.issue($0) }
        try put(identities[0])
        try await service(pem(directory.path)) { _, credentials in
            try directory.rename(try identities[1].keyPEM, to: "tls.key")
            try await eventually { log.text.contains("does not fit") }
            #expect(leaf(credentials) == identities[0].certificate)
            try directory.rename(identities[2].chainPEM, to: "tls.crt")
            try directory.rename(try identities[2].keyPEM, to: "tls.key")
            try await eventually { leaf(credentials) == identities[2].certificate }
        }
    }

    @Test("An identity that TLS and peers refuse does not replace a good one")
    func aBadOneDoesNotReplaceAGoodOne() async throws {
        let (good, next) = (try authority.issue("good"), try authority.issue("next"))
        let expired = try authority.issue("expired", notAfter: Date(timeIntervalSinceNow: -60))
        let alone = try authority.issue("alone")
        try put(good)
        try await service(pem(directory.path)) { _, credentials in
            for (identity, chain, words) in [
                (expired, expired.chainPEM, "it expired on"),
                (alone, alone.certificate.pemRepresentation, "it comes without its issuer"),
            ] {
                try directory.rename(chain, to: "tls.crt")
                try directory.rename(try identity.keyPEM, to: "tls.key")
                try await eventually { log.text.contains(words) }
                #expect(leaf(credentials) == good.certificate)
            }
            try directory.rename(next.chainPEM, to: "tls.crt")
            try directory.rename(try next.keyPEM, to: "tls.key")
            try await eventually { leaf(credentials) == next.certificate }
        }
    }

    // MARK: - PKCS#12

    private func writeP12(_ identity: Identity, password: String = "s3cret") throws {
        try directory.write(identity.chainPEM, to: "chain.pem")
        try directory.write(try identity.keyPEM, to: "key.pem")
        try Subprocess.run(
            [
                "openssl", "pkcs12", "-export", "-inkey", "key.pem", "-in", "chain.pem", "-passout", "pass:\(password)",
                "-out",
                "new.p12",
            ], in: directory.path)
        #expect(Glibc.rename(directory["new.p12"], directory["client.p12"]) == 0)
    }

    private func pkcs12(_ source: String = "env:PASSWORD") -> [String] {
        [
            "CertificateProvider = pkcs12", "CertificateProvider.pkcs12.path = \(directory["client.p12"])",
            "CertificateProvider.pkcs12.password-source = \(source)",
        ]
    }

    /// The renewal is due in months: only the change of the file leads to it.
    @Test("A PKCS#12 file that is replaced in week two is taken then, by a service and by a program that starts")
    func aPKCS12FileIsTakenAtOnce() async throws {
        let year = Date(timeIntervalSinceNow: 31_536_000)
        let identities = try ["one", "two", "three"].map { try authority.issue($0, notAfter: year) }
        try writeP12(identities[0])
        try await service(pkcs12()) { logon, credentials in
            #expect(leaf(credentials) == identities[0].certificate)
            try writeP12(identities[1])
            try await eventually { leaf(credentials) == identities[1].certificate }
            #expect(try await logon.manager.storedIdentity()?.certificate == identities[1].certificate)
        }
        try writeP12(identities[2])
        try await service(pkcs12()) { logon, credentials in
            #expect(leaf(credentials) == identities[2].certificate)
            let renewed = try await logon.manager.renewIdentityIfDue(at: Date(), NoUserInteraction())
            #expect(renewed.certificate == identities[2].certificate)
        }
    }

    private func writeEncryptedPEM(_ identity: Identity) throws {
        try directory.write(try identity.keyPEM, to: "key.pem")
        try Subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-in", "key.pem", "-passout", "pass:s3cret", "-out", "encrypted.pem"],
            in: directory.path)
        let key = String(decoding: try directory.read("encrypted.pem"), as: UTF8.self)
        try directory.rename(identity.chainPEM + key, to: "tls.pem")
    }

    /// The password is read each time that a key is decrypted. Looks then stop until the pair is in use: none finds it half taken.
    @Test("From the file to the next handshake, a pair is read once", arguments: [true, false])
    func aPairIsReadOnce(isPEM: Bool) async throws {
        let write = isPEM ? writeEncryptedPEM : { try writeP12($0) }
        let properties =
            isPEM
            ? pem(directory["tls.pem"]) + ["CertificateProvider.pem.key-password-source = env:PASSWORD"] : pkcs12()
        let (looks, reads) = (Looks(), BlockingMutex(0))
        let (first, next) = (try authority.issue("first"), try authority.issue("next"))
        try write(first)
        try await withService(properties, in: directory, log, looks: looks) {
            looks.hold()
            reads.withLock { $0 += 1 }
            return "s3cret"
        } _: { _, credentials in
            #expect(leaf(credentials) == first.certificate && reads.withLock(\.self) == 1)
            try write(next)
            looks.goOn()
            try await eventually { leaf(credentials) == next.certificate }
            #expect(reads.withLock(\.self) == 2)
        }
    }

    @Test("A PKCS#12 file that the command reads first reaches a running service")
    func aPKCS12FileThatTheCommandReadsFirst() async throws {
        let identities = try ["one", "two", "three"].map { try authority.issue($0) }
        try writeP12(identities[0])
        let looks = Looks()
        try await service(pkcs12(), looks: looks) { _, credentials in
            for identity in identities.dropFirst() {
                try await looks.hold {
                    try writeP12(identity)
                    let command = try CertprovLogon(
                        configuredBy: directory["service.properties"], logger: TestLog().logger,
                        secrets: SecretReader { $0 == "PASSWORD" ? "s3cret" : nil },
                        store: IdentityStore(path: directory["state"]), vaults: nil)
                    let renewed = try await command.manager.renewIdentityIfDue(at: Date(), NoUserInteraction())
                    #expect(renewed.certificate == identity.certificate)
                }
                try await eventually { leaf(credentials) == identity.certificate }
            }
        }
    }

    @Test("A PKCS#12 file whose password can only be asked for is a warning at each change")
    func aPKCS12FileThatNeedsAPerson() async throws {
        try writeP12(authority.issue("one"))
        try await service(pkcs12()) { _, _ in }
        try await service(pkcs12("prompt")) { _, _ in
            for count in 1...3 {
                try writeP12(authority.issue("next"))
                try await eventually { log.warnings.count { $0.contains("can only be asked for") } == count }
            }
        }
    }

    @Test("A PKCS#12 file with another password leaves the stored identity, with a warning")
    func aPKCS12FileThatCannotBeRead() async throws {
        let (one, two) = (try authority.issue("one"), try authority.issue("two"))
        try writeP12(one)
        try await service(pkcs12()) { logon, credentials in
            try writeP12(two, password: "another")
            try await eventually { log.text.contains("wrongPassword") }
            #expect(leaf(credentials) == one.certificate)
            #expect(try await logon.manager.identity(NoUserInteraction()).certificate == one.certificate)
            #expect(log.warnings.contains { $0.contains("the stored identity stays") })
            // A file that is gone is not a change.
            unlink(directory["client.p12"])
            #expect(try await logon.manager.identity(NoUserInteraction()).certificate == one.certificate)
        }
    }
}
