import CertificateProviderTesting
import CertificateProviding
import Foundation
import Glibc
import PEMFileProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct PEMFileProviderTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    /// The identity that a certificate, or a directory, leads to.
    private func fetched(_ certificate: String) async throws -> Identity {
        try await PEMFileProvider.testing(["certificate": certificate]).fetch()
    }

    @Test("Nothing of the files is copied: the identity is read from them as long as it is in use")
    func nothingIsCopied() async throws {
        let (one, two) = (try authority.issue("one"), try authority.issue("two"))
        let certificate = try directory.write(one.chainPEM, to: "web.pem", mode: 0o644)
        let key = try directory.write(try one.keyPEM, to: "web.key")
        let storage = InMemoryStorage()
        let provider = try PEMFileProvider.testing(
            ["certificate": certificate, "key": key], .testing(storage: storage))
        #expect(try provider.getStoredCertificate() == nil)
        let identity = try await provider.fetch()
        #expect(identity.certificateChain == one.certificateChain)
        #expect(identity.key.location == .file && identity.key.exporter != nil && identity.trust == nil)
        #expect(identity.provenance == .init(provider: PEMFileProvider.id, source: certificate))
        #expect(try storage.entryNames().isEmpty && storage.recordNames().count == 1)
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.isStored) == [true] && list.failures.isEmpty && list.remarks.isEmpty)

        try directory.write(two.chainPEM, to: "web.pem")
        try directory.write(try two.keyPEM, to: "web.key")
        let later = try PEMFileProvider.testing(["certificate": certificate, "key": key], .testing(storage: storage))
        #expect(try later.getStoredCertificate()?.certificate == two.certificate)
        try later.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil && storage.recordNames().isEmpty)
        #expect(FileManager.default.fileExists(atPath: key))
        #expect(await provider.listIdentities().identities.map(\.isStored) == [false])
    }

    @Test("The conformance suite of providers passes")
    func conformance() async throws {
        let identity = try authority.issue("client", kind: .rsa2048)
        try directory.write(try identity.keyPEM, to: "plain.pem")
        try Subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-in", "plain.pem", "-out", "key.pem", "-passout", "pass:s3cret"],
            in: directory.path)
        chmod(directory["key.pem"], 0o600)
        let certificate = try directory.write(identity.chainPEM, to: "chain.pem")
        let storage = InMemoryStorage()
        let report = await ProviderConformance(
            PEMFileProvider.descriptor,
            ProviderParameters([
                "certificate": .init(certificate), "key": .init(directory["key.pem"]),
                "key-password-source": .init("env:PW"),
            ]), secrets: ["s3cret"]
        ) { .testing(storage: storage, variables: ["PW": "s3cret"]) }.run()
        #expect(report.isPassed && report.results.count > 8, "\(report)")
    }

    @Test("The chain is found in any order, with the root first, and without the certificates of others")
    func chainsInAnyOrder() async throws {
        let identity = try authority.issue("client")
        let (leaf, intermediate) = (identity.certificate, authority.intermediate)
        let other = try authority.issue("other").certificate
        for chain in [
            [leaf, intermediate], [leaf, intermediate, authority.root], [authority.root, intermediate, leaf],
            [intermediate, leaf], [other, authority.root, leaf, intermediate],
        ] {
            let text = chain.map(\.pemRepresentation).joined() + (try identity.keyPEM)
            let path = try directory.write(text, to: "both.pem")
            #expect(try await fetched(path).certificateChain == [leaf, intermediate])
        }
    }

    @Test("A key that others can read is refused; one of a group that may read it is used, with a warning")
    func keysOfOthersAreRefused() async throws {
        let identity = try authority.issue("client")
        let certificate = try directory.write(identity.chainPEM, to: "web.pem", mode: 0o644)
        let key = try directory.write(try identity.keyPEM, to: "web.key")
        let log = TestLog()
        var environment = ProviderEnvironment.testing()
        environment.logger = log.logger
        let provider = try PEMFileProvider.testing(["certificate": certificate], environment)
        for mode in [0o600, 0o400, 0o640, 0o440] as [mode_t] {
            chmod(key, mode)
            _ = try await provider.fetch()
            let isOfGroup = mode & 0o040 != 0
            #expect(await provider.listIdentities().remarks.count == (isOfGroup ? 1 : 0))
        }
        #expect(log.warnings.count == 2 && log.text.contains("can be read by every member of the group"))
        for mode in [0o644, 0o604, 0o660, 0o666] as [mode_t] {
            chmod(key, mode)
            let error = await failure { try await provider.fetch() }
            #expect(error?.code == .configurationInvalid && error?.message.contains("is open to other users") == true)
            #expect(error?.message.contains("chmod 600 \(key)") == true)
        }
        chmod(key, 0o640)
        guard geteuid() == 0, chown(key, 0, 4711) == 0 else { return }
        _ = try await provider.fetch()
        #expect(log.warnings.last?.contains("every member of the group 4711") == true)
        chmod(key, 0o644)
        let error = await failure { try await provider.fetch() }
        // The members of the group go on reading it.
        #expect(error?.message.contains("run: chmod g-wx,o= \(key)") == true, "\(error?.message ?? "")")
    }

    @Test(
        "A key of another user, or one that an access control list opens, is used with a word about its readers",
        .enabled(if: geteuid() == 0, "only root makes a file of another user"))
    func keysOfOtherUsers() async throws {
        let identity = try authority.issue("client")
        let certificate = try directory.write(identity.chainPEM, to: "web.pem", mode: 0o644)
        let key = try directory.write(try identity.keyPEM, to: "web.key")
        let provider = try PEMFileProvider.testing(["certificate": certificate])
        func remarks() async throws -> String { await provider.listIdentities().remarks.joined(separator: "\n") }
        chown(key, 65534, 0)
        _ = try await provider.fetch()
        #expect(try await remarks() == "\(key) belongs to another user (uid 65534), who can read and replace it.")
        chown(key, 0, 0)
        try Subprocess.run(["setfacl", "-m", "u:65534:r", key])
        #expect(try await remarks() == "\(key) can be read by the user 65534 of its access control list.")
        chown(key, 65534, 4711)
        try Subprocess.run(["setfacl", "-m", "g::r", key])
        let error = await failure { try await provider.fetch() }
        #expect(error?.message.contains("is open to other users (mode 640, group 4711, with an access control") == true)
        #expect(error?.message.contains("or chown root \(key), whose group and list may read it") == true)
    }

    @Test("A key that systemd has passed is used without a word, however the list shows in its mode")
    func credentials() async throws {
        let identity = try authority.issue("client")
        let certificate = try directory.write(identity.chainPEM, to: "tls.crt", mode: 0o444)
        let key = try directory.write(try identity.keyPEM, to: "tls.key", mode: 0o440)
        func remarks(_ credentials: String) async throws -> [String]? {
            let secrets = SecretReader { $0 == "CREDENTIALS_DIRECTORY" ? credentials : nil }
            var environment = ProviderEnvironment.testing()
            environment.secrets = secrets
            let provider = try PEMFileProvider.testing(["certificate": certificate], environment)
            guard (try? await provider.fetch()) != nil else { return nil }
            return await provider.listIdentities().remarks
        }
        for path in [directory.path, directory.path + "/"] { #expect(try await remarks(path) == []) }
        #expect(try await remarks(directory.path + "/other")?.count == 1)
        chmod(key, 0o444)
        #expect(try await remarks(directory.path) == [])
        for other in [directory.path + "/..", "", "relative"] { #expect(try await remarks(other) == nil) }
    }

    @Test("A key in the certificate's own file counts before one beside it; haproxy's NAME.pem.key is found")
    func keysOfHAProxy() async throws {
        let (identity, other) = (try authority.issue("web"), try authority.issue("other"))
        for name in ["web.pem", "tls.crt"] {
            let path = try directory.write(identity.chainPEM + (try identity.keyPEM), to: name)
            for beside in ["web.key", "web.pem.key", "tls.key"] { try directory.write(other.keyPEM, to: beside) }
            let read = try await fetched(path)
            #expect(read.certificate == identity.certificate, "\(name)")
            // One that is named counts.
            let named = ["certificate": path, "key": directory["web.key"]]
            #expect(await code { try await PEMFileProvider.testing(named).fetch() } == .keyMismatch)
        }
        let path = try directory.write(identity.chainPEM, to: "site.pem", mode: 0o644)
        try directory.write(try identity.keyPEM, to: "site.pem.key")
        #expect(try await fetched(path).certificate == identity.certificate)
    }

    // MARK: - Layouts

    /// The files that a program writes, as it names them.
    private func lay(_ identity: Identity, _ chain: String, _ key: String, trust: (String, String)? = nil) throws {
        for name in [chain, key] {
            if let end = name.lastIndex(of: "/") { try directory.make(String(name[..<end])) }
        }
        try directory.write(identity.chainPEM, to: chain, mode: 0o644)
        try directory.write(try identity.keyPEM, to: key)
        if let trust { try directory.write(trust.1, to: trust.0) }
    }

    @Test("A secret of Kubernetes or cert-manager is read as a directory, with its CA")
    func kubernetes() async throws {
        let identity = try authority.issue("pod")
        try lay(identity, "tls.crt", "tls.key", trust: ("ca.crt", authority.root.pemRepresentation))
        for path in [directory.path, directory.path + "/", directory["tls.crt"]] {
            let read = try await fetched(path)
            #expect(read.certificateChain == identity.certificateChain && read.trust == TrustBundle([authority.root]))
        }
        // cert-manager leaves it empty for an ACME issuer.
        try directory.write("", to: "ca.crt")
        #expect(try await fetched(directory.path).trust == nil)
    }

    @Test("The directories of certbot and dehydrated are read, and the root of their chain.pem is the trust bundle")
    func certbot() async throws {
        let identity = try authority.issue("web")
        let issuers = authority.intermediate.pemRepresentation
        try lay(identity, "fullchain1.pem", "privkey1.pem", trust: ("chain1.pem", issuers))
        try directory.write(identity.certificate.pemRepresentation, to: "cert1.pem")
        for name in ["fullchain", "privkey", "chain", "cert"] { try directory.link("\(name).pem", to: "\(name)1.pem") }
        for path in [directory.path, directory["fullchain.pem"]] {
            let read = try await fetched(path)
            #expect(read.certificateChain == identity.certificateChain && read.trust == nil)
        }
        try directory.write(issuers + authority.root.pemRepresentation, to: "chain1.pem")
        #expect(try await fetched(directory.path).trust == TrustBundle([authority.root]))
        #expect(try await fetched(directory["cert.pem"]).certificateChain.count == 1)
    }

    @Test("The files of lego and uacme are read")
    func legoAndUacme() async throws {
        let identity = try authority.issue("web")
        try lay(identity, "lego/example.com.crt", "lego/example.com.key")
        try directory.write(authority.intermediate.pemRepresentation, to: "lego/example.com.issuer.crt")
        try directory.write("{}", to: "lego/example.com.json")
        try lay(identity, "uacme/example.com/cert.pem", "uacme/private/example.com/key.pem")
        for path in ["lego", "lego/example.com.crt", "uacme/example.com", "uacme/example.com/cert.pem"] {
            let read = try await fetched(directory[path])
            #expect(read.certificateChain == identity.certificateChain, "\(path)")
        }
        try lay(try authority.issue("other"), "lego/other.example.crt", "lego/other.example.key")
        let error = await failure { try await fetched(directory["lego"]) }
        #expect(
            error?.code == .configurationInvalid
                && error?.message.contains("'example.com.crt', 'other.example.crt'") == true)
        let file = ["certificate": directory["lego/other.example.crt"]]
        #expect(try await PEMFileProvider.testing(file).fetch().certificate.subject.contains("other"))
    }

    @Test("A trust bundle is read whole, and one without a CA is an error")
    func trustBundles() async throws {
        let identity = try authority.issue("client")
        try lay(
            identity, "web.crt", "web.key",
            trust: ("cas.pem", authority.root.pemRepresentation + authority.intermediate.pemRepresentation))
        let parameters = ["certificate": directory["web.crt"], "trust-bundle": directory["cas.pem"]]
        #expect(
            try await PEMFileProvider.testing(parameters).fetch().trust
                == TrustBundle([authority.root, authority.intermediate]))
        for (text, code) in [
            (identity.chainPEM.prefix(200), ProviderError.Code.malformedData), ("", .malformedData),
        ] {
            try directory.write(String(text), to: "cas.pem")
            #expect(await TestSupport.code { try await PEMFileProvider.testing(parameters).fetch() } == code)
        }
        unlink(directory["cas.pem"])
        #expect(await code { try await PEMFileProvider.testing(parameters).fetch() } == .fileNotFound)
    }

    // MARK: - Errors

    @Test("Each mistake is an error that names the file and the next step")
    func mistakes() async throws {
        let identity = try authority.issue("client")
        let (certificate, key) = (directory["web.crt"], directory["other"])
        func expect(
            _ code: ProviderError.Code, _ fragments: String..., parameters: [String: String]? = nil
        ) async {
            let error = await failure {
                try await PEMFileProvider.testing(parameters ?? ["certificate": certificate, "key": key]).fetch()
            }
            #expect(error?.code == code, "\(error?.message ?? "")")
            for fragment in fragments { #expect(error?.message.contains(fragment) == true, "\(error?.message ?? "")") }
        }
        await expect(.fileNotFound, certificate)
        try directory.write(identity.chainPEM, to: "web.crt")
        await expect(.fileNotFound, key)
        await expect(
            .malformedData, certificate,
            "contains no private key in PEM, and there is no web.key or web.crt.key beside it", "set 'key'",
            parameters: ["certificate": certificate])
        try directory.write(try authority.issue("another").keyPEM, to: "other")
        await expect(.keyMismatch, "\(key), line 1: the private key does not fit", certificate)
        try directory.write(try identity.keyPEM.dropLast(30).description, to: "other")
        await expect(.malformedData, "\(key), line 1: the PEM block 'PRIVATE KEY' is cut off")
        try directory.write(try identity.keyPEM.replacing("M", with: "A"), to: "other")
        await expect(.malformedData, "\(key), line 1: ")
        try directory.write(try identity.keyPEM, to: "other")
        try directory.write("no certificate", to: "web.crt")
        await expect(.malformedData, "\(certificate) contains no certificate")
        try directory.write(identity.chainPEM.dropLast(30).description, to: "web.crt")
        await expect(.malformedData, "\(certificate), line ", "is cut off")
        await expect(.fileNotFound, directory.path, "known name", parameters: ["certificate": directory.path])
        mkfifo(directory["fifo"], 0o600)
        await expect(.configurationInvalid, "named pipe", parameters: ["certificate": directory["fifo"]])
        await expect(
            .configurationInvalid, "key-pin-source",
            parameters: ["certificate": certificate, "key": key, "key-pin-source": "env:X"])
    }

    @Test("A password that only a person knows is asked for once, and never for the stored identity")
    func passwordsOfPeople() async throws {
        let identity = try authority.issue("client")
        try directory.write(try identity.keyPEM, to: "key.pem")
        try Subprocess.run(
            ["openssl", "pkcs8", "-topk8", "-in", "key.pem", "-out", "web.key", "-passout", "pass:s3cret"],
            in: directory.path)
        chmod(directory["web.key"], 0o600)
        let certificate = try directory.write(identity.chainPEM, to: "web.crt")
        let provider = try PEMFileProvider.testing(["certificate": certificate, "key-password-source": "prompt"])
        #expect(await code { try await provider.fetch() } == .interactionRequired)
        let person = Person("s3cret")
        #expect(try await provider.getCertificate(person).certificate == identity.certificate)
        #expect(failure { try provider.getStoredCertificate() }?.code == .interactionRequired)
    }

    @Test("A pair that is in use and does not fit is on its way for a minute")
    func aPairIsOnItsWay() async throws {
        let (one, two) = (try authority.issue("one"), try authority.issue("two"))
        try lay(one, "tls.crt", "tls.key")
        let now = BlockingMutex(Date())
        var environment = ProviderEnvironment.testing()
        environment.now = { now.withLock(\.self) }
        let provider = try PEMFileProvider.testing(["certificate": directory.path], environment)
        _ = try await provider.fetch()
        try directory.rename(try two.keyPEM, to: "tls.key")
        now.withLock { $0 = Date() }
        let error = failure { try provider.getStoredCertificate() }
        #expect(error?.code == .pending && error?.retryAfter != nil)
        now.withLock { $0 = Date() + 120 }
        #expect(failure { try provider.getStoredCertificate() }?.code == .keyMismatch)
        try directory.rename(two.chainPEM, to: "tls.crt")
        #expect(try provider.getStoredCertificate()?.certificate == two.certificate)
    }

    @Test("A key in a key store is found by the public key of the certificate in the file")
    func keysInAKeyStore() async throws {
        let storage = InMemoryStorage()
        let environment = ProviderEnvironment.testing(storage: storage)
        let store = try environment.keyStores.store("store:")
        let key = try await store.make(NewKey(.p256, label: "web"), NoUserInteraction()) { _ in }
        let other = try await store.make(NewKey(.p256, label: "other"), NoUserInteraction()) { _ in }
        let leaf = try authority.certify(key.publicKey.derRepresentation, as: "web")
        let text = [authority.root, authority.intermediate, leaf].map(\.pemRepresentation).joined()
        let certificate = try directory.write(text, to: "web.crt", mode: 0o644)
        let provider = try PEMFileProvider.testing(["certificate": certificate, "key": "store:"], environment)
        let identity = try await provider.fetch()
        #expect(identity.certificateChain == [leaf, authority.intermediate] && identity.key.location == .store)
        #expect(try provider.getStoredCertificate()?.certificate == leaf)
        // Another certificate, for a key that the store has, and for one that it has not.
        let renewed = try authority.certify(other.publicKey.derRepresentation, as: "renewed")
        try directory.rename(renewed.pemRepresentation, to: "web.crt")
        #expect(try provider.getStoredCertificate()?.certificate == renewed)
        try directory.rename(try authority.issue("elsewhere").chainPEM, to: "web.crt")
        let error = await failure { try await provider.fetch() }
        // It is in use, and its key may come in a moment.
        #expect(error?.code == .pending && error?.message.contains(certificate) == true)
    }
}
