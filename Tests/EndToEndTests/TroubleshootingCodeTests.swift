import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

/// Each error code of `Documentation/Troubleshooting.md`, provoked: the exit status is that of the page, and what the message
/// says stands in the section of its code.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TroubleshootingCodeTests {
    private let sandbox: Sandbox
    private static let cases: [(code: String, provoke: @Sendable (Self) async throws -> Output)] = [
        ("usage", { try $0.sandbox.certprov("list", "--set", "path=x") }),
        ("malformedData", { try $0.sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.pem"))) }),
        ("unsupportedAlgorithm", { try $0.aWeakKey() }),
        ("keyMismatch", { try $0.aPluginWithAnotherKey() }),
        ("documentNotSignable", { try $0.anEncryptedDocument() }),
        ("certificateNotUsable", { try $0.aCertificateForKeyAgreement() }),
        ("fileNotFound", { try $0.sandbox.certprov(["fetch"] + adHoc("/etc/myservice/no.p12")) }),
        ("notFound", { try $0.sandbox.certprov(["fetch"] + adHoc(ec, "--set", "alias=other")) }),
        ("expired", { try $0.aRenewalFromTheSameFile(daysLeft: -1) }),
        ("unavailable", { try $0.sandbox.certprov(["connect", "127.0.0.1:1"] + adHoc(ec)) }),
        ("tokenNotPresent", { _ in try TokenHost(.softhsm).certprov(["fetch", "--uri", "pkcs11:token=absent"]) }),
        ("internal", { try $0.aPlugin(answering: #"{"id":%s,"error":{"code":"internal","message":"It fails."}}"#) }),
        (
            "providerError",
            {
                let error = #"{"code":"seatTaken","message":"Seat 7 is taken.","nativeCode":7}"#
                return try $0.aPlugin(answering: #"{"id":%s,"error":\#(error)}"#)
            }
        ),
        ("alreadyExists", { try $0.aNameInUse() }),
        (
            "storeWriteFailed",
            { try $0.sandbox.certprov(["fetch"] + adHoc(ec), with: ["XDG_STATE_HOME": "/proc/none"]) }
        ),
        ("deleteFailed", { try $0.aStoreThatCannotBeWritten() }),
        ("storeReadFailed", { try $0.aStoreThatIsOpen() }),
        ("pending", { try $0.aRenewalFromTheSameFile() }),
        ("timedOut", { try $0.aServerThatIsSilent() }),
        ("operationNotAllowed", { try $0.anOperationBesideAnother() }),
        ("protocolError", { try $0.aPlugin(answering: #"{"id":%s,"result":7}"#) }),
        ("serverNotTrusted", { try await $0.aServerOfAnotherAuthority() }),
        (
            "wrongPassword",
            { try $0.sandbox.certprov(["fetch"] + adHoc(ec, password: "env:OTHER"), with: ["OTHER": "x"]) }
        ),
        ("pinIncorrect", { _ in try aToken { ["fetch"] + $0.options(pin: $0.wrongPIN) } }),
        ("pinFinalTry", { _ in try aToken(fault: "flags \(CKF_USER_PIN_FINAL_TRY)") }),
        ("pinLocked", { _ in try aToken(fault: "before \(CKR_PIN_LOCKED)") }),
        ("rejected", { try await $0.aServer { $0.fail("POST", .status(403)) } }),
        ("interactionRequired", { try $0.sandbox.certprov(["fetch"] + adHoc(ec, password: "prompt")) }),
        ("userCancelled", { try $0.aUserWhoDeclines() }),
        ("vaultLocked", { try $0.aVault(locked: true) }),
        ("vaultDestroyed", { try $0.aVault(locked: false) }),
        ("configurationMissing", { try $0.sandbox.certprov("fetch") }),
        ("configurationInvalid", { try $0.sandbox.certprov("fetch", "--config", $0.file("Port = 8082\nPort = 8083")) }),
        ("unsupportedParameter", { try $0.sandbox.certprov(["fetch"] + adHoc(ec, "--set", "passwort=x")) }),
        (
            "noCertificateProvider",
            { try $0.sandbox.certprov("fetch", "--config", $0.file("UserCreationPolicy = automatic")) }
        ),
    ]
    private static let ec = Fixtures.path("ec.p12")
    private static let (CKF_USER_PIN_FINAL_TRY, CKR_PIN_LOCKED) = (0x2_0000, 0xa4)

    init() throws { sandbox = try Sandbox() }

    @Test func eachCodeOfThePageIsProvoked() throws {
        let codes = Self.cases.map(\.code).sorted()
        #expect(codes == (try Self.statuses()).keys.sorted())
        // Each has a link to its section, which is named like it; the heading of a symptom begins with a capital letter.
        let links = try Self.page().matches(of: #/(?m)^\| \[`(\w+)`\]\(#(\w+)\)/#)
        #expect(links.count == codes.count && links.allSatisfy { $0.1.lowercased() == $0.2 })
        #expect(try Self.page().matches(of: #/(?m)^## ([a-z]\S*)$/#).map { String($0.1) }.sorted() == codes)
    }

    @Test("The page has each public error code, and the one of the command")
    func theCodesArePublic() throws {
        let interface = try String(
            contentsOf: Page.root.appending(path: "Documentation/Interfaces/CertificateProviding.txt"), encoding: .utf8)
        let codes = interface.matches(of: #/(?m)^static let ProviderError\.Code\.`?(\w+)`?:/#)
        #expect(Set(codes.map { String($0.1) } + ["usage"]) == Set(try Self.statuses().keys))
    }

    @Test(arguments: cases.map(\.code)) func theMessageLeadsToItsSection(code: String) async throws {
        let output = try await #require(Self.cases.first { $0.code == code }).provoke(self)
        #expect(output.status == (try Self.statuses())[code], "\(output)")
        // An error in the use of options ends with the usage.
        if code != "usage" { #expect(output.stderr.contains("[\(code)]"), "\(output)") }
        let section = try Self.section(code)
        // The message stands in the section, with … for what differs.
        let quotes = section.matches(of: #/`([^`\n]+)`|(?m)^certprov: .*$/#).map { String($0.1 ?? $0.0) }
        let said = output.stderr.split(separator: "\n").joined(separator: " ")
        #expect(quotes.contains { Self.isQuoted($0, in: said) }, "\(output)\nThe section quotes: \(quotes)")
        // So does each command that it names.
        for command in said.matches(of: #/(?:run: |run '|with ')certprov ([a-z]+)/#).map({ String($0.1) }) {
            #expect(section.contains("`certprov \(command)") || section.contains("`\(command)"), "\(output)")
        }
    }

    // MARK: - The page

    private static func page() throws -> String {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../..")
        return try String(contentsOf: root.appending(path: "Documentation/Troubleshooting.md"), encoding: .utf8)
    }

    static func statuses() throws -> [String: Int32] {
        let rows = try page().matches(of: #/(?m)^\| \[`(\w+)`\]\([^)]*\) \| (\d+) \|/#)
        return try Dictionary(uniqueKeysWithValues: rows.map { (String($0.1), try #require(Int32($0.2))) })
    }

    private static func section(_ code: String) throws -> String {
        let page = try page()
        let start = try #require(page.range(of: "\n## \(code)\n"))
        let rest = page[start.upperBound...]
        return String(rest[..<(rest.range(of: "\n## ")?.lowerBound ?? rest.endIndex)])
    }

    /// Whether the parts of a quote between `…` and between names stand in the message, in this order.
    private static func isQuoted(_ quote: String, in message: String) -> Bool {
        // An example has the names of its own.
        let isExample = quote.hasPrefix("certprov: ")
        let parts = quote.replacing(#/^certprov: \S+: /#, with: "").split(
            separator: isExample
                ? #/'[^']*'|"[^"]*"|\/\S+|\(.*\)|\[\w+\]|cannot be created: .*/# : #/…|'…'|\bN\b|FILE:LINE|\bFILE\b/#
        ).map { $0.trimmingCharacters(in: .whitespaces) }.filter { !$0.isEmpty }
        guard parts.joined().count > 7 else { return false }
        var rest = message[...]
        for part in parts {
            guard let found = rest.range(of: part) else { return false }
            rest = rest[found.upperBound...]
        }
        return true
    }

    // MARK: - What goes wrong

    private func anEncryptedDocument() throws -> Output {
        try sandbox.shell("qpdf --empty --encrypt '' owner 256 -- \"$1/encrypted.pdf\"", sandbox.path).expect()
        return try sandbox.certprov(
            ["sign", "pdf", "--out", sandbox.path + "/signed.pdf", sandbox.path + "/encrypted.pdf"]
                + adHoc(Self.ec))
    }

    private func aCertificateForKeyAgreement() throws -> Output {
        try sandbox.shell(
            """
            set -e; cd "$1"
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 9 -subj /CN=agreement -keyout key.pem \\
                -out certificate.pem -addext keyUsage=critical,keyAgreement
            """, sandbox.path
        ).expect()
        return try sandbox.certprov(
            "sign", "raw", "--provider", "pem", "--set", "certificate=\(sandbox.path)/certificate.pem", "--set",
            "key=\(sandbox.path)/key.pem", "--out", sandbox.path + "/signature", sandbox.path + "/certificate.pem")
    }

    private func aNameInUse() throws -> Output {
        let create = ["keys", "create", "phone", "--type", "p256"]
        try sandbox.certprov(create).expect()
        return try sandbox.certprov(create)
    }

    private func file(_ lines: String) throws -> String { try sandbox.write(lines + "\n", to: "app.properties") }

    private func application(_ more: String = "") throws -> String {
        try file("Host = localhost\nPort = 8082\nSecurityConfiguration = SSO\nApplicationId = demo\n" + more)
    }

    /// flock(1) has the lease of the application.
    private func anOperationBesideAnother() throws -> Output {
        let directory = sandbox.store + "/applications/demo"
        let script = "umask 077; mkdir -p $1 && flock $1/.claim-operation $CERTPROV unregister --yes --config $2"
        return try sandbox.shell(script, directory, application())
    }

    private func aWeakKey() throws -> Output {
        try sandbox.shell(
            """
            cd $1 && openssl req -x509 -newkey rsa:1024 -nodes -keyout weak.key -out weak.pem -subj /CN=weak && \
            openssl pkcs12 -export -inkey weak.key -in weak.pem -passout env:P12_PASSWORD -out weak.p12
            """, sandbox.path
        ).require()
        return try sandbox.certprov(["fetch"] + adHoc(sandbox.path + "/weak.p12"))
    }

    /// The plugin to begin with, whose key was replaced.
    private func aPluginWithAnotherKey() throws -> Output {
        try sandbox.shell(
            "umask 077; cd $1 && $CERTPROV plugin new corp --language sh && cp $2 corp/example/key.pem", sandbox.path,
            Fixtures.path("a.key")
        ).require()
        let lines =
            "PluginDirectory = D/corp\nCertificateProvider = corp\nCertificateProvider.corp.directory = D/corp/example"
        return try sandbox.certprov("fetch", "--config", file(lines.replacing("D/", with: sandbox.path + "/")))
    }

    /// One that answers each request with a line.
    private func aPlugin(answering answer: String) throws -> Output {
        let hello = #"{"id":1,"result":{"version":1,"id":"odd","provider":{"displayName":"T","summary":"T."}}}"#
        let program = #"""
            #!/bin/sh
            while read -r line; do
                case $line in
                *'"hello"'*) echo '\#(hello)' ;;
                *'"configure"'*) echo '{"id":2,"result":{}}' ;;
                *'"request"'*) number=${line#*'"id":'}; number=${number%%[!0-9]*}; printf '\#(answer)\n' "$number" ;;
                esac
            done

            """#
        let source = try sandbox.write(program, to: "odd")
        try sandbox.shell(
            "mkdir -m 700 $1/plugins && install -m 700 $2 $1/plugins/certprov-plugin-odd", sandbox.path, source
        ).require()
        let lines = "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = odd"
        return try sandbox.certprov("fetch", "--config", file(lines))
    }

    private static func aToken(
        fault: String? = nil, _ arguments: (TokenHost) -> [String] = { ["fetch"] + $0.options(pin: $0.pin) }
    ) throws -> Output {
        let host = try TokenHost(.softhsm, behind: .faults)
        try host.setFault(fault)
        return try host.certprov(arguments(host))
    }

    private func aStoreThatCannotBeWritten() throws -> Output {
        try #require(try sandbox.certprov(["fetch"] + adHoc(Self.ec)).status == 0)
        let arguments = [BuiltCommand.path, "delete", "--yes"] + adHoc(Self.ec)
        guard geteuid() == 0 else {
            try sandbox.shell("chmod -R a-w $1", sandbox.store).require()
            return try sandbox.run(arguments)
        }
        let script = "mount --bind $0 $0 && mount -o remount,bind,ro $0 && exec \"$@\""
        return try sandbox.run(["unshare", "--mount", "sh", "-c", script, sandbox.store] + arguments)
    }

    private func aStoreThatIsOpen() throws -> Output {
        try #require(try sandbox.certprov(["fetch"] + adHoc(Self.ec)).status == 0)
        try #require(chmod(sandbox.store, 0o777) == 0)
        return try sandbox.certprov(["fetch"] + adHoc(Self.ec))
    }

    private func aRenewalFromTheSameFile(daysLeft: Double = 10) throws -> Output {
        // Due since a month.
        let (start, end) = (Date(timeIntervalSinceNow: -100 * 86_400), Date(timeIntervalSinceNow: daysLeft * 86_400))
        let identity = try TestAuthority().issue("client", notBefore: start, notAfter: end)
        let key = try #require(identity.key.exporter).pkcs8Representation()
        try sandbox.write(key.withUnsafeBytes { Array($0) }, to: "key.der")
        try sandbox.write(identity.certificate.pemRepresentation, to: "leaf.pem")
        try sandbox.shell(
            """
            cd $1 && openssl pkey -inform DER -in key.der -out key.pem && \
            openssl pkcs12 -export -inkey key.pem -in leaf.pem -passout env:P12_PASSWORD -out due.p12
            """, sandbox.path
        ).require()
        try sandbox.certprov(["fetch"] + adHoc(sandbox.path + "/due.p12")).require((daysLeft > 0 ? 0 : 66))
        return try sandbox.certprov(["renew"] + adHoc(sandbox.path + "/due.p12"))
    }

    /// The kernel accepts the connection, and no more comes.
    private func aServerThatIsSilent() throws -> Output {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = in_addr_t(INADDR_LOOPBACK).bigEndian
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isListening = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                bind(listener, pointer, size) == 0 && listen(listener, 8) == 0
                    && getsockname(listener, pointer, &size) == 0
            }
        }
        try #require(isListening)
        let port = UInt16(bigEndian: address.sin_port)
        return try sandbox.certprov(["connect", "127.0.0.1:\(port)", "--timeout", "1"] + adHoc(Self.ec))
    }

    private func aServerOfAnotherAuthority() async throws -> Output {
        let server = try await PlatformServer(TestAuthority())
        let output = try sandbox.certprov(
            ["connect", "localhost:\(server.port)", "--trust-anchors", Fixtures.path("ca.pem")] + adHoc(Self.ec))
        await server.close()
        return output
    }

    /// Registers with a password.
    private func aServer(_ prepare: (PlatformServer) -> Void) async throws -> Output {
        let authority = try TestAuthority()
        let server = try await PlatformServer(authority)
        prepare(server)
        let root = Data(authority.root.derRepresentation).base64EncodedString(options: .lineLength64Characters)
        let anchors = try sandbox.write(
            "-----BEGIN CERTIFICATE-----\n\(root)\n-----END CERTIFICATE-----\n", to: "anchors.pem")
        let password = try sandbox.write(PlatformServer.user.1, to: "password")
        let file = try file(
            """
            Host = 127.0.0.1
            Port = \(server.port)
            SecurityConfiguration = SSO
            ApplicationId = demo
            TrustAnchors = \(anchors)
            UserCreationPolicy = automatic
            Registration.username = \(PlatformServer.user.0)
            Registration.password-source = file:\(password)
            Passcode.default-allowed = true
            """)
        let output = try sandbox.certprov("register", "--config", file)
        await server.close()
        return output
    }

    private func aUserWhoDeclines() throws -> Output {
        try #require(try sandbox.certprov(["fetch"] + adHoc(Self.ec)).status == 0)
        let command = (["\"$CERTPROV\" delete"] + adHoc(Self.ec)).joined(separator: " ")
        let result = try #require(try sandbox.atTerminal(command, asked: "[y/N]") { try $0.type("n\n") })
        // A terminal has one output.
        let screen = Array(result.screen.utf8)
        return Output(status: result.status, stdoutBytes: screen, stderrBytes: screen)
    }

    /// A vault that this process makes. The command asks a user at a terminal before the attempt that destroys one.
    private func aVault(locked: Bool) throws -> Output {
        var policy = PasscodePolicy()
        policy.maximumAttempts = 2
        let vault = try DataVault(applicationID: "demo", stateDirectory: sandbox.store, policy: policy)
        try vault.create(passcode: SecretBytes(utf8: "correct horse battery"), values: [:])
        vault.lock()
        if locked { return try sandbox.certprov("vault", "list", "--config", application()) }
        do throws(ProviderError) {
            for _ in 0..<2 {
                do throws(ProviderError) { try vault.unlock(SecretBytes(utf8: "wrong")) } catch {
                    if error.code != .wrongPassword { throw error }
                }
            }
        } catch {
            let line = "\(error.message) [\(error.code)]"
            return Output(status: 77, stdoutBytes: [], stderrBytes: Array(line.utf8))
        }
        throw Subprocess.Failure(description: "the vault is still there")
    }
}
