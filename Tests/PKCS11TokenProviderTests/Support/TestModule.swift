import Foundation
import Glibc
import TestSupport
import Testing

/// A PKCS#11 module that the suite runs on, as p11-kit is configured with it for this process.
enum TestModule: String, CaseIterable, Sendable, CustomTestStringConvertible {
    case softhsm, nss, tpm
    /// SoftHSM again, in another process.
    case remote
    /// In a process that ``OpencryptokiTests`` starts.
    case opencryptoki

    var testDescription: String { rawValue }

    /// The only one, in such a process.
    static let only = ProcessInfo.processInfo.environment["CERTPROV_TEST_MODULE"].flatMap(Self.init)

    /// Those that are installed here.
    static let installed = (only.map { [$0] } ?? allCases.filter { $0 != .opencryptoki }).filter { module in
        [module.library, module == .tpm ? "/usr/bin/swtpm" : nil].allSatisfy { path in
            path.map { FileManager.default.fileExists(atPath: $0) } ?? true
        }
    }

    /// Whether opencryptoki can have the namespaces that its daemon needs.
    static let canRunOpencryptoki =
        geteuid() == 0 && (try? Subprocess.run(["unshare", "--mount-proc", "--ipc", "--pid", "--fork", "true"])) != nil

    /// Those whose tokens are files of SoftHSM.
    static let softHSMs = installed.filter { $0 == .softhsm || $0 == .remote }

    var library: String {
        switch self {
        case .softhsm, .remote: "/usr/lib/softhsm/libsofthsm2.so"
        case .nss: Self.systemLibrary("libsoftokn3.so")
        case .tpm: Self.systemLibrary("pkcs11/libtpm2_pkcs11.so")
        case .opencryptoki: Self.systemLibrary("pkcs11/libopencryptoki.so")
        }
    }

    /// The keys on its main token: all kinds that the module can sign with. The other tokens have the first one.
    var kinds: [TestAuthority.KeyKind] {
        switch self {
        case .softhsm: TestAuthority.KeyKind.allCases
        case .nss, .remote: [.p256, .p384, .p521, .rsa2048]
        // As many keys as it has room for at a time, without a resource manager: three, with one to log in.
        case .tpm: [.p256]
        case .opencryptoki: [.rsa2048]
        }
    }

    /// The label of one of its tokens. A process has one token of opencryptoki: that of Debian 12 (3.8.1) mixes up the
    /// objects of several.
    func label(_ token: TestToken) -> String { self == .opencryptoki ? rawValue : "\(rawValue)-\(token.rawValue)" }

    private static func systemLibrary(_ name: String) -> String {
        let directories = ["x86_64-linux-gnu", "aarch64-linux-gnu"].map { "/usr/lib/\($0)/" }
        return directories.map { $0 + name }.first { FileManager.default.fileExists(atPath: $0) } ?? directories[0]
            + name
    }
}

/// The tokens of each module. A login belongs to the process, so what needs a token without one has it for itself.
enum TestToken: String, CaseIterable, Sendable {
    /// Keys of all kinds; every provider may log in.
    case main
    /// A login is not permitted.
    case closed
    /// Gets wrong PINs.
    case pins
    /// Its PIN is typed in by a person.
    case person
}

/// A module and a kind of key that is on its main token.
struct KeyCase: Sendable, CustomTestStringConvertible {
    let module: TestModule
    let kind: TestAuthority.KeyKind
    var testDescription: String { "\(module.rawValue), \(kind.rawValue)" }

    static let all = TestModule.installed.flatMap { module in module.kinds.map { KeyCase(module: module, kind: $0) } }
}
