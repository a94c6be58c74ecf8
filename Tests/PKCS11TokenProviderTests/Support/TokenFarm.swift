import CertificateProviding
import Foundation
import Glibc
import TestSupport

/// The tokens of this process, in a directory that goes with it.
///
/// Modules read their environment when they are initialised, and p11-kit keeps its configuration, so that both are set
/// once, before the first module is loaded, and all tokens are there from then on.
struct TokenFarm: Sendable {
    // opencryptoki takes 4 to 8 characters.
    static let pin = "pin-tok8"
    static let wrongPIN = "pin-tok9"
    static let soPIN = "so-tok12"

    let path: String
    let authority: TestAuthority
    /// Identities whose keys are on the main tokens of SoftHSM and NSS, by kind.
    let identities: [TestAuthority.KeyKind: Identity]

    static func shared() throws -> TokenFarm { try made.get() }

    private static let made = Result { try TokenFarm() }

    private init() throws {
        Surroundings.makeUsual()
        var template = Array("/tmp/certprov-tokens-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure(description: "mkdtemp: \(errno)") }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        setenv("CERTPROV_TEST_TOKENS", path, 1)
        atexit { TokenFarm.remove() }
        authority = try TestAuthority()
        let authority = authority
        identities = try TestAuthority.KeyKind.allCases.reduce(into: [:]) { all, kind in
            all[kind] = try authority.issue(kind.rawValue, kind: kind)
        }
        for name in ["modules", "empty", "softhsm", "swtpm", "tpm"] { mkdir(path + "/" + name, 0o700) }
        try write(Self.pin + "\n", to: "pin")
        try write(Self.wrongPIN + "\n", to: "wrong-pin")
        try writeIdentities()
        for module in TestModule.installed {
            switch module {
            case .softhsm: try makeSoftHSM()
            case .nss: try makeNSS()
            case .tpm: try makeTPM()
            case .remote: try configure(module, "remote: |p11-kit remote \(module.library)")
            case .opencryptoki: try makeOpencryptoki()
            }
        }
        try overrideConfiguration()
    }

    struct Failure: Error, CustomStringConvertible { var description: String }

    func file(_ name: String) -> String { path + "/" + name }

    @discardableResult
    func write(_ text: String, to name: String) throws -> String {
        try write(Array(text.utf8), to: name)
    }

    @discardableResult
    func write(_ bytes: [UInt8], to name: String) throws -> String {
        try Data(bytes).write(to: URL(filePath: file(name)))
        guard chmod(file(name), 0o600) == 0 else { throw Failure(description: "chmod: \(errno)") }
        return file(name)
    }

    func configure(_ module: TestModule, _ lines: String...) throws {
        try write(lines.joined(separator: "\n") + "\n", to: "modules/\(module.rawValue).module")
    }

    /// Makes p11-kit read this directory. Its own configuration would lead to the modules of this host, and that of the
    /// user is not read by root.
    private func overrideConfiguration() throws {
        typealias Override =
            @convention(c) (
                UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?, UnsafePointer<CChar>?,
                UnsafePointer<CChar>?
            ) -> Void
        // In the library for tests like these; its header hides it from other programs.
        guard let symbol = dlsym(nil, "p11_kit_override_system_files") else {
            throw Failure(description: "this p11-kit cannot be configured for a test")
        }
        let (system, modules, empty) = (
            try write("user-config: none\n", to: "pkcs11.conf"), file("modules"), file("empty")
        )
        // p11-kit keeps the pointers.
        unsafeBitCast(symbol, to: Override.self)(
            strdup(system), strdup(file("no-user.conf")), strdup(empty), strdup(modules), strdup(empty))
    }

    private func writeIdentities() throws {
        for (kind, identity) in identities {
            guard let key = identity.key.exporter else { continue }
            let base64 = try key.pkcs8Representation().withUnsafeBytes {
                Data($0).base64EncodedString(options: .lineLength64Characters)
            }
            try write("-----BEGIN PRIVATE KEY-----\n\(base64)\n-----END PRIVATE KEY-----\n", to: "\(kind.rawValue).key")
            try write(identity.certificate.derRepresentation, to: "\(kind.rawValue).der")
            try write(identity.certificate.pemRepresentation, to: "\(kind.rawValue).pem")
        }
        try write(authority.intermediate.derRepresentation, to: "intermediate.der")
        try write(authority.intermediate.pemRepresentation, to: "intermediate.pem")
    }

    /// The process that has written its id into a file.
    static func process(named path: String) -> pid_t? {
        let text = try? String(contentsOfFile: path, encoding: .utf8)
        return text.flatMap { pid_t($0.trimmingCharacters(in: .whitespacesAndNewlines)) }.flatMap { $0 > 1 ? $0 : nil }
    }

    private static func remove() {
        guard let path = getenv("CERTPROV_TEST_TOKENS").map({ String(cString: $0) }) else { return }
        // It has inherited a mask that keeps gentler signals away.
        if let pid = process(named: path + "/swtpm.pid") { kill(pid, SIGKILL) }
        try? FileManager.default.removeItem(atPath: path)
    }
}
