import CertificateProviding
import CertificateTLS
import Foundation
import Glibc
import NIOSSL
import PKCS11TokenProvider
import TestSupport
import Testing

/// A PIV card behind OpenSC and pcscd. One test after the other: there is one card.
@Suite(
    .serialized, .timeLimit(.minutes(20)), .disabled(if: Card.obstacle != nil, "\(Card.obstacle ?? "")"),
    .disabled("another pcscd runs on this host") { Card.obstacle == nil && Card.isTaken })
struct CardTests {
    private let card: Card
    private let certprov: Command

    init() throws {
        card = try Card.shared()
        certprov = try Command()
    }

    private var token: String { "pkcs11:token=\(card.label)" }

    // MARK: What is on it

    @Test func aListingShowsFourIdentities() async throws {
        let pins = try card.pins
        let list = await (try card.provider("pkcs11:", hasPIN: false)).listIdentities()
        #expect(list.identities.count == 4 && list.failures.isEmpty, "\(list)")
        #expect(list.remarks.contains { $0.contains("hides its private keys") }, "\(list.remarks)")
        #expect(try card.pins == pins)
        let open = try card.provider(token)
        let uris = await open.listIdentities().identities.compactMap(\.keyURI)
        #expect(uris.count == 4 && uris.allSatisfy { $0.hasSuffix("type=private") }, "\(uris)")
        #expect(try card.pins == pins + 1)
        try open.deleteStoredCertificate()
    }

    @Test(arguments: Card.Slot.allCases) func anIdentityIsFetched(slot: Card.Slot) throws {
        let out = card.file("out-" + slot.rawValue)
        let output = try certprov(["fetch", "--out", out] + card.options(card.uri(slot)))
        #expect(output.status == 0 && output.stderr.isEmpty, "\(output)")
        #expect(output.stdout.contains("CN=holder1-" + slot.rawValue), "\(output)")
        #expect(FileManager.default.fileExists(atPath: out + "/current/chain.pem"))
    }

    @Test(arguments: Card.Slot.allCases) func aKeySigns(slot: Card.Slot) async throws {
        let identity = try await card.identity(slot)
        for scheme in identity.key.signatureSchemes {
            let message = Array("message".utf8)
            let signature = try await identity.key.signature(for: message, using: scheme)
            #expect(identity.key.publicKey.isValidSignature(signature, for: message, using: scheme), "\(scheme)")
        }
    }

    /// 9c has a P-256 key, which wants its PIN for each signature; 9a an RSA key.
    @Test(arguments: [Card.Slot.authentication, .signature]) func aSigningRequestIsAnswered(slot: Card.Slot) throws {
        let folder = try TemporaryDirectory()
        let configuration = """
            CertificateProvider = pkcs11
            CertificateProvider.pkcs11.module-path = \(try #require(Card.module))
            CertificateProvider.pkcs11.uri = \(card.uri(slot))
            CertificateProvider.pkcs11.pin-source = file:\(card.file("pin"))
            Signing.time-stamp-url = none
            Signing.user-code = 17
            Signing.client.1.name = Bank
            Signing.client.1.key-source = env:CLIENT_KEY
            Signing.client.1.operations = sign-pdf, sign-challenge
            Signing.client.1.approval = unattended

            """
        try folder.write(configuration.utf8, to: "requests.properties")
        try folder.write(TestPDF.bytes, to: "contract.pdf")
        try folder.write((0..<64).map { UInt8($0) }, to: "challenge")
        func run(_ arguments: [String], to file: String = "output") throws -> Output {
            let output = try certprov.start(
                ["CLIENT_KEY=the key", certprov.program("certprov"), "requests"] + arguments
            ).wait()
            try folder.write(output.stdoutBytes, to: file)
            return output
        }
        for (file, isSigned) in [("contract.pdf", true), ("challenge", slot == .signature)] {
            let made = try run(
                [
                    "send", folder[file], "--client-id", "1", "--key-source", "env:CLIENT_KEY", "--service-name", "S",
                    "--user-code", "17", "--url",
                ],
                to: "request")
            #expect(made.status == 0, "\(made)")
            let answered = try run(
                ["open", "--input", folder["request"], "--config", folder["requests.properties"]], to: "reply")
            #expect(answered.status == (isSigned ? 0 : 69), "\(file): \(answered)")
            // OpenSSL verifies the document's signature.
            let verified = try run([
                "send", folder[file], "--reply", folder["reply"], "--out", folder["signed-" + file],
            ])
            #expect(verified.status == (isSigned ? 0 : 69), "\(file): \(verified)")
            #expect(verified.stdout.contains("CN=holder1-" + slot.rawValue) == isSigned, "\(verified)")
        }
    }

    /// Messages that OpenSSL's command has encrypted. OpenSC removes the padding itself, and knows both hashes.
    @Test(arguments: [Card.Slot.authentication, .keyManagement]) func aKeyDecrypts(slot: Card.Slot) async throws {
        let publicKey = try await card.identity(slot).key.publicKey
        let store = try #require(try card.provider(slot).keyStore)
        let key = try #require(try store.storedKey(for: KeyReference(publicKey: publicKey, uri: "")))
        let decrypter = try #require(key.decrypter)
        #expect(decrypter.decryptionSchemes == DecryptionScheme.known)
        for scheme in decrypter.decryptionSchemes {
            var ciphertext = try scheme.opensslEncrypt([1, 2, 3], for: publicKey)
            #expect(try await decrypter.decrypt(ciphertext, using: scheme) == SecretBytes(copying: [1, 2, 3]))
            guard scheme != .rsaPKCS1 else { continue }
            ciphertext[100] ^= 1
            let error = await failure { _ = try await decrypter.decrypt(ciphertext, using: scheme) }
            #expect(error?.code == .malformedData, "\(String(describing: error))")
        }
    }

    @Test(arguments: Card.Slot.allCases, [TLSVersion.tlsv12, .tlsv13])
    func aHandshakeIsMade(slot: Card.Slot, version: TLSVersion) async throws {
        let report = try await Server.handshake(with: try await card.identity(slot), on: card, version)
        #expect(report.tlsVersion == version && report.clientAuthentication != .notRequested)
    }

    /// Four tasks share a key.
    @Test(arguments: [Card.Slot.authentication, .signature]) func manyTasksSignAtOnce(slot: Card.Slot) async throws {
        let key = try await card.identity(slot).key
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for _ in 0..<4 {
                tasks.addTask {
                    for _ in 0..<2 { guard try await key.signsValidly() else { return false } }
                    return true
                }
            }
            for try await isValid in tasks { #expect(isValid) }
        }
    }

    // MARK: PINs

    /// The PIN is known afterwards, until the choice is forgotten.
    @Test func aPersonTypesThePIN() async throws {
        let provider = try card.provider(.authentication, hasPIN: false)
        #expect(
            await failure { _ = try await provider.getCertificate(NoUserInteraction()) }?.code == .interactionRequired)
        let person = Person(Card.pin)
        let identity = try await provider.getCertificate(person)
        #expect(person.questions == ["PIN for the token '\(card.label)'"])
        #expect(try await identity.key.signsValidly())
        _ = try await provider.getCertificate(person)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        #expect(person.questions.count == 1)
        try provider.deleteStoredCertificate()
        let error = await failure { _ = try await identity.key.signsValidly() }
        #expect(error?.code == .interactionRequired, "\(String(describing: error))")
    }

    /// A logout by another provider ends the login of all; the next signature logs in again.
    @Test func aLogoutElsewhereDoesNotStopAService() async throws {
        let identity = try await card.identity(.authentication)
        let other = try card.provider(.authentication)
        _ = try await other.getCertificate(NoUserInteraction())
        try other.deleteStoredCertificate()
        #expect(try await identity.key.signsValidly())
    }

    @Test func aKeyThatNeedsNoPINGetsNone() async throws {
        let pins = try card.pins
        for pin in [nil, "pin"] {
            let output = try certprov(["fetch"] + card.options(card.uri(.cardAuthentication), pin: pin))
            #expect(output.status == 0 && output.stderr.isEmpty, "\(output)")
        }
        let provider = try card.provider(.cardAuthentication, hasPIN: false)
        #expect(try provider.getStoredCertificate()?.key.uri?.contains("id=%04") == true)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        #expect(try card.pins == pins)
    }

    @Test func loginNeverRefusesAKeyThatNeedsALogin() throws {
        let never = "login=never"
        let output = try certprov(["fetch"] + card.options(card.uri(.authentication), pin: nil, never))
        #expect(output.status == 77 && output.stderr.contains("'login' is 'never'"), "\(output)")
        let free = try certprov(["fetch"] + card.options(card.uri(.cardAuthentication), pin: nil, never))
        #expect(free.status == 0, "\(free)")
    }

    @Test func aWrongPINOfTenProcessesCostsOneTry() async throws {
        try card.restoreTries()
        // Each takes seconds for the card, one after the other.
        let arguments = ["fetch"] + (try card.options(card.uri(.authentication), pin: "wrong-pin", "timeout=100"))
        let threads = BlockingExecutor.threads(maximum: 10)
        let statuses = try await withThrowingTaskGroup(of: Int32?.self) { tasks in
            for _ in 0..<10 {
                tasks.addTask { [certprov] in
                    try await threads.run { () throws(ProviderError) in
                        do { return try certprov(arguments).status } catch {
                            throw ProviderError(.internal, "\(error)")
                        }
                    }
                }
            }
            return try await tasks.reduce(into: []) { $0.append($1) }
        }
        #expect(statuses.contains(77) && Set(statuses).isSubset(of: [75, 77]), "\(statuses)")
        #expect(try card.triesLeft == Card.tries - 1)
        // Neither does a later one.
        #expect(try certprov(arguments).status == 77)
        #expect(try card.triesLeft == Card.tries - 1)
        #expect(try certprov(["fetch"] + card.options(card.uri(.authentication))).status == 0)
        #expect(try card.triesLeft == Card.tries)
    }

    // MARK: Faults

    @Test(arguments: [Card.Slot.authentication, .signature])
    func aRefusedSignatureIsCalledThat(slot: Card.Slot) async throws {
        let identity = try await card.identity(slot)
        try await card.failing(#"{"fail_ins":135,"fail_sw":27010}"#) {
            let error = await failure { _ = try await identity.key.signsValidly() }
            #expect(error?.code == .rejected, "\(String(describing: error))")
            #expect(error?.message.contains("C_Sign: CKR_USER_NOT_LOGGED_IN") == true, "\(String(describing: error))")
            let output = try certprov(["fetch", "--force"] + card.options(card.uri(slot)))
            #expect(output.status == 77 && output.stderr.contains("refuses to use the key"), "\(output)")
        }
        #expect(try await identity.key.signsValidly())
        #expect(try card.triesLeft == Card.tries)
    }

    /// An RSA signature is two commands, so that it takes twelve seconds, and a handshake is given ten.
    @Test func aSlowSignatureIsWaitedFor() async throws {
        let options = try card.options(card.uri(.authentication))
        #expect(try certprov(["fetch"] + options).status == 0)
        try await card.failing(#"{"sign_delay":6}"#) {
            let (port, identity, server) = try serve(trusting: card.file("ca.pem"))
            defer { server.stop() }
            let output = try certprov(["connect", "localhost:\(port)", "--trust-anchors", identity] + options)
            #expect(output.status == 0, "\(output)")
        }
    }

    /// OpenSSL's server, which demands a certificate of the authorities in a file, on a port, and the file of its own.
    private func serve(trusting authorities: String) throws -> (port: Substring, certificate: String, Subprocess) {
        let (identity, key) = (card.file("server.pem"), card.file("server.key"))
        try Subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout", key,
            "-out", identity, "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        ])
        let server = try Subprocess([
            "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", identity, "-key", key, "-Verify", "3",
            "-verify_return_error", "-CAfile", authorities, "-www",
        ])
        var line = server.readLine()
        while let text = line, !text.hasPrefix("ACCEPT") { line = server.readLine() }
        return (try #require(line?.split(separator: ":").last), identity, server)
    }

    @Test func aCardThatWasPulledSignsAgainWhenItIsBack() async throws {
        let identity = try await card.identity(.authentication)
        for _ in 0..<3 {
            try card.takeOut()
            // At once, while the reader's service takes it for present.
            let isNoticed = try await eventually {
                let code = await failure { _ = try await identity.key.signsValidly() }?.code
                #expect(code != .timedOut)
                return code == .tokenNotPresent
            }
            #expect(isNoticed)
            #expect(try certprov(["fetch"] + card.options(card.uri(.authentication))).status == 69)
            try card.putIn()
            #expect(try await eventually { (try? await identity.key.signsValidly()) ?? false })
        }
        #expect(try card.triesLeft == Card.tries)
    }

    @Test(arguments: [Card.Slot.authentication, .signature])
    func aCardThatIsPulledWhileItSignsIsFoundAgain(slot: Card.Slot) async throws {
        let identity = try await card.identity(slot)
        try await card.failing(#"{"pull_ins":135,"away":1}"#) {
            let error = await failure { _ = try await identity.key.signsValidly() }
            #expect([nil, .tokenNotPresent, .unavailable].contains(error?.code), "\(String(describing: error))")
            let isBack = try await eventually { (try? await identity.key.signsValidly()) ?? false }
            #expect(isBack)
        }
        #expect(try card.triesLeft == Card.tries)
    }

    /// OpenSC 0.23 leaves a lock locked then. The card stays away for longer than the command takes.
    @Test func aCardThatIsPulledAtThePINIsCalledThat() async throws {
        let options = try card.options(card.uri(.authentication))
        for _ in 0..<3 {
            try await card.failing(#"{"pull_ins":32,"away":120}"#) {
                let output = try certprov(["fetch", "--force"] + options)
                #expect(output.status == 69, "\(output)")
            }
            try card.takeOut()
            try card.putIn()
            let isBack = try await eventually { try certprov(["list"] + options).stdout.contains("type=private") }
            #expect(isBack)
        }
        #expect(try await eventually { try certprov(["fetch"] + options).status == 0 })
        #expect(try card.triesLeft == Card.tries)
    }

    @Test func aReaderServiceThatIsDownIsCalledThat() async throws {
        let identity = try await card.identity(.cardAuthentication)
        try card.stopService()
        for command in ["list", "fetch"] {
            let output = try certprov([command] + card.options("pkcs11:", pin: nil))
            #expect(output.status == 69 && output.stderr.contains("start pcscd"), "\(output)")
        }
        #expect(await failure { _ = try await identity.key.signsValidly() } != nil)
        try card.startService()
        #expect(
            try await eventually {
                try certprov(["list"] + card.options(token, pin: nil)).stdout.contains("holder1-9e")
            })
        #expect(try await eventually { (try? await identity.key.signsValidly()) ?? false })
    }

    // MARK: The certificate in a file

    /// A certificate in a file for a key of the card, by an authority of its own, and the property file of a service.
    private struct Web {
        let directory: TemporaryDirectory
        let authority: TestAuthority
        let publicKey: [UInt8]
        var properties: String { directory["web.properties"] }

        init(_ card: Card, _ slot: Card.Slot) async throws {
            (directory, authority) = (try TemporaryDirectory(), try TestAuthority())
            let provider = try card.provider(slot)
            publicKey = try await provider.getCertificate(NoUserInteraction()).key.publicKey.derRepresentation
            try provider.deleteStoredCertificate()
            try directory.write(authority.root.pemRepresentation.utf8, to: "ca.pem")
            let client = try authority.issue("client")
            let chain = client.certificateChain.map(\.pemRepresentation).joined()
            try directory.write(chain.utf8, to: "client.pem")
            let key = try #require(client.key.exporter).pkcs8Representation().withUnsafeBytes { Array($0) }
            try directory.write(key, to: "client.p8")
            try configure(card, slot)
            _ = try issue()
        }

        func configure(_ card: Card, _ slot: Card.Slot, pin: String = "pin") throws {
            let lines = """
                CertificateProvider = pem
                CertificateProvider.pem.certificate = \(directory["web.pem"])
                CertificateProvider.pem.key = \(card.uri(slot))?module-path=\(try #require(Card.module))
                CertificateProvider.pem.key-pin-source = file:\(card.file(pin))
                CertificateProvider.pem.usage = both
                TrustAnchors = \(directory["ca.pem"])

                """
            try directory.write(lines.utf8, to: "web.properties")
        }

        /// Issues the certificate anew, and returns its serial number.
        func issue() throws -> String {
            let leaf = try authority.certify(publicKey, as: "web")
            let chain = leaf.pemRepresentation + authority.intermediate.pemRepresentation
            try directory.write(chain.utf8, to: "web.new")
            try #require(rename(directory["web.new"], directory["web.pem"]) == 0)
            let output = try Subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", directory["web.pem"]])
            return String(decoding: output, as: UTF8.self).trimmingCharacters(in: .newlines)
                .replacing("serial=", with: "")
        }

        /// Whether `fetch` writes what the file has.
        func isFetched(_ certprov: Command) throws -> Bool {
            let fetched = try certprov(["fetch", "--config", properties, "--out", directory["out"]])
            #expect(fetched.status == 0, "\(fetched)")
            return try directory.read("out/current/chain.pem") == directory.read("web.pem")
        }

        func serve(_ certprov: Command) throws -> ServingProcess {
            try ServingProcess([certprov.program("SigningService")], configuredBy: properties) {
                try certprov.start($0)
            }
        }

        func serves(_ serial: String?, _ server: ServingProcess) async throws -> Bool {
            try await eventually {
                try server.serialNumber(
                    for: [
                        "-cert", directory["client.pem"], "-cert_chain", directory["client.pem"], "-key",
                        directory["client.p8"], "-keyform", "DER",
                    ], trustedBy: directory["ca.pem"]) == serial
            }
        }
    }

    @Test(
        "A certificate in a file is used with its key on the card, and a renewed one is taken",
        arguments: [Card.Slot.signature, .cardAuthentication])
    func aCertificateInAFile(slot: Card.Slot) async throws {
        let web = try await Web(card, slot)
        let options = ["--config", web.properties]
        let listed = try certprov(["list"] + options)
        #expect(listed.status == 0 && listed.stdout.contains("CN=web"), "\(listed)")
        #expect(try web.isFetched(certprov))
        let (port, identity, server) = try serve(trusting: web.directory["ca.pem"])
        defer { server.stop() }
        let connected = try certprov(["connect", "localhost:\(port)", "--trust-anchors", identity] + options)
        #expect(connected.status == 0, "\(connected)")
        var serial = try web.issue()
        #expect(try web.isFetched(certprov))
        let service = try web.serve(certprov)
        #expect(try await web.serves(serial, service))
        serial = try web.issue()
        #expect(try await web.serves(serial, service))
        let end = service.stop()
        #expect(end.status == 0, "\(end)")
        #expect(try card.triesLeft == Card.tries)
    }

    @Test("A wrong PIN for a key beside a certificate in a file costs one try")
    func aWrongPINCostsOneTry() async throws {
        try card.restoreTries()
        let web = try await Web(card, .authentication)
        try web.configure(card, .authentication, pin: "wrong-pin")
        for _ in 0..<2 {
            for command in ["fetch", "list", "check"] {
                let output = try certprov([command, "--config", web.properties])
                #expect(output.status != 0, "\(output)")
            }
            #expect(throws: Subprocess.Failure.self) { try web.serve(certprov) }
            #expect(try card.triesLeft == Card.tries - 1)
        }
        try web.configure(card, .authentication)
        #expect(try web.isFetched(certprov))
        #expect(try card.triesLeft == Card.tries)
    }

    @Test("A service goes on when the card is back, with the certificate that the file has by then")
    func aServiceGoesOnWhenTheCardIsBack() async throws {
        let web = try await Web(card, .authentication)
        #expect(try web.isFetched(certprov))
        let service = try web.serve(certprov)
        defer { service.stop() }
        try card.takeOut()
        #expect(try await web.serves(nil, service))
        let isMissed = try await eventually { try certprov(["fetch", "--config", web.properties]).status == 69 }
        #expect(isMissed)
        let serial = try web.issue()
        try card.putIn()
        #expect(try await web.serves(serial, service))
        #expect(try card.triesLeft == Card.tries)
    }
}
