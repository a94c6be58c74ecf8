import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

extension Card {
    /// A provider that uses the card, as after a restart.
    func provider(
        _ uri: String, hasPIN: Bool = true, storage: any IdentityStorage = InMemoryStorage(),
        _ settings: [String: String] = [:]
    ) throws -> PKCS11TokenProvider {
        var parameters = ["module-path": try #require(Self.module), "uri": uri, "timeout": "60"]
        if hasPIN { parameters["pin-source"] = "file:" + file("pin") }
        parameters.merge(settings) { $1 }
        let provider = try PKCS11TokenProvider(
            environment: .testing(storage: storage), parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }

    func provider(
        _ slot: Slot, hasPIN: Bool = true, _ settings: [String: String] = [:]
    ) throws -> PKCS11TokenProvider { try provider(uri(slot), hasPIN: hasPIN, settings) }

    func identity(_ slot: Slot) async throws -> Identity {
        try await provider(slot).getCertificate(NoUserInteraction())
    }
}

/// The built command with an identity store of its own.
struct Command: Sendable {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    /// Runs the command to its end.
    func callAsFunction(_ arguments: [String]) throws -> Output { try start([program("certprov")] + arguments).wait() }

    /// The path of a program that is built beside the tests.
    func program(_ name: String) -> String {
        URL(filePath: CommandLine.arguments[0]).deletingLastPathComponent().appending(path: name).path
    }

    /// Starts a program with the command's identity store.
    func start(_ arguments: [String]) throws -> Subprocess {
        let variables = [
            "XDG_STATE_HOME=" + directory["state"], "XDG_CONFIG_HOME=" + directory["config"], "HOME=" + directory.path,
        ]
        return try Subprocess(variables + arguments, .captured(), seconds: 600)
    }
}

extension Card {
    /// The command's options for an identity on the card.
    func options(_ uri: String, pin: String? = "pin", _ more: String...) throws -> [String] {
        ["--provider", "pkcs11", "--set", "module-path=\(try #require(Self.module))", "--set", "uri=\(uri)"]
            + (pin.map { ["--set", "pin-source=file:" + file($0)] } ?? []) + more.flatMap { ["--set", $0] }
    }
}

/// Tries again and again, for ten minutes, until `body` says that it is so.
func eventually(_ body: () async throws -> Bool) async throws -> Bool {
    let end = ContinuousClock.now + .seconds(600)
    while ContinuousClock.now < end {
        if try await body() { return true }
        try await Task.sleep(for: .milliseconds(50))
    }
    return false
}
