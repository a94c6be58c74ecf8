import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport

/// Empty SoftHSM tokens, one for each test that writes, made once a run: the module looks for tokens only when it is
/// initialised.
final class EmptyTokens: Sendable {
    static let pin = "123456"
    static let soPIN = "12345678"

    /// A token is known by its label.
    enum Name: String, CaseIterable {
        case types, tools, request, enrolment, renewal, samekey, delete, chosen, several, faults, many, remains
        case estaway, estremains, esttypes, estrenewal, estrefused, estpending, estmoved, estdelete, estasked, pinone,
            otherpin,
            scep, decryption, confirmed, device, asked, listed, kinds, conformance, usages
    }

    /// One of them has another PIN.
    static let otherPIN = "87654321"

    private let folder: TemporaryDirectory
    /// A copy of SoftHSM for these tests alone.
    let module: String

    static let shared = Result { try EmptyTokens() }

    private init() throws {
        folder = try TemporaryDirectory()
        let directory = folder["tokens"]
        mkdir(directory, 0o700)
        let configuration = try folder.write(
            "directories.tokendir = \(directory)\nobjectstore.backend = file\nlog.level = ERROR\n".utf8, to: "c.conf")
        // The library is told its directory by a variable of the process, in which other tests use it too. The copy is
        // a library of its own to the loader, and looks for a variable of its own.
        var library = try Data(contentsOf: URL(filePath: Self.library))
        let variable = "SOFTHSM2_CONF", ownVariable = "SOFTHSM2_GENR"
        guard let place = library.range(of: Data(variable.utf8)) else { throw Failure(description: "another SoftHSM") }
        library.replaceSubrange(place, with: Data(ownVariable.utf8))
        module = try folder.write(library, to: "libsofthsm2.so", mode: 0o755)
        setenv(ownVariable, configuration, 1)
        for name in Name.allCases {
            try run(
                "softhsm2-util", "--init-token", "--free", "--label", name.rawValue, "--pin",
                name == .otherpin ? Self.otherPIN : Self.pin, "--so-pin", Self.soPIN)
        }
    }

    static let library = "/usr/lib/softhsm/libsofthsm2.so"
    struct Failure: Error, CustomStringConvertible { var description: String }

    /// Runs a tool on these tokens.
    @discardableResult
    func run(_ arguments: String...) throws -> String {
        let output = try Subprocess.run(["SOFTHSM2_CONF=" + folder["c.conf"]] + arguments)
        return String(decoding: output, as: UTF8.self)
    }

    /// Returns the output of OpenSC's tool about every object on a token.
    func listing(_ token: Name) throws -> String {
        try run(
            "pkcs11-tool", "--module", Self.library, "--token-label", token.rawValue, "--login", "--pin", Self.pin, "-O"
        )
    }

    /// - Parameter path: DER.
    func write(_ type: String, _ path: String, labelled label: String, to token: Name, id: String = "d1") throws {
        try run(
            "pkcs11-tool", "--module", Self.library, "--token-label", token.rawValue, "--login", "--pin", Self.pin,
            "--write-object", path, "--type", type, "--label", label, "--id", id, "--usage-sign")
    }

    /// Destroys an object, as a deletion does that then stops.
    func destroy(_ type: String, labelled label: String, on token: Name) throws {
        try run(
            "pkcs11-tool", "--module", Self.library, "--token-label", token.rawValue, "--login", "--pin", Self.pin,
            "--delete-object", "--type", type, "--label", label)
    }

    /// How many objects are on a token.
    func count(_ token: Name) throws -> Int {
        try listing(token).split(separator: "\n").count {
            $0.hasPrefix("Private Key") || $0.hasPrefix("Public Key") || $0.hasPrefix("Certificate")
        }
    }

    /// A provider of one token, which knows the PIN.
    func provider(
        _ token: Name, object: String = "", storage: InMemoryStorage = InMemoryStorage(), _ more: [String: String] = [:]
    ) throws -> PKCS11TokenProvider {
        var parameters = [
            "uri": "pkcs11:token=\(token.rawValue)\(object)", "module-path": module, "pin-source": "env:PIN",
        ]
        parameters.merge(more) { $1 }
        let provider = try PKCS11TokenProvider(
            environment: .testing(storage: storage, variables: ["PIN": Self.pin]),
            parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }
}
