import CertificateProviding
import CertprovKit
import Foundation
import Glibc
import PEMFileProvider
import ServiceLifecycle
import TestSupport
import Testing

extension Identity {
    /// The chain in PEM.
    var chainPEM: String { certificateChain.map(\.pemRepresentation).joined() }

    /// The key in PEM, PKCS#8.
    var keyPEM: String {
        get throws {
            let key = try #require(key.exporter).pkcs8Representation().withUnsafeBytes { Data($0) }
            return "-----BEGIN PRIVATE KEY-----\n"
                + key.base64EncodedString(options: [.lineLength64Characters, .endLineWithLineFeed])
                + "\n-----END PRIVATE KEY-----\n"
        }
    }
}

extension TemporaryDirectory {
    @discardableResult
    func write(_ text: String, to name: String, mode: UInt32 = 0o600) throws -> String {
        try write(Array(text.utf8), to: name, mode: mode)
    }

    /// Replaces a file by `rename`, as most programs do.
    func rename(_ text: String, to name: String) throws {
        try write(text, to: name + ".new")
        guard Glibc.rename(self[name + ".new"], self[name]) == 0 else { throw CocoaError(.fileWriteUnknown) }
    }

    func make(_ directory: String) throws {
        try FileManager.default.createDirectory(atPath: self[directory], withIntermediateDirectories: true)
    }

    /// Makes or replaces a symbolic link in one step.
    func link(_ name: String, to target: String) throws {
        unlink(self[name + ".new"])
        guard symlink(target, self[name + ".new"]) == 0, Glibc.rename(self[name + ".new"], self[name]) == 0 else {
            throw CocoaError(.fileWriteUnknown)
        }
    }
}

extension PEMFileProvider {
    static func testing(
        _ parameters: [String: String], _ environment: ProviderEnvironment = .testing()
    ) throws(ProviderError) -> PEMFileProvider {
        try PEMFileProvider(
            environment: environment, parameters: ProviderParameters(parameters.mapValues { .init($0) }))
    }

    func fetch() async throws(ProviderError) -> Identity { try await getCertificate(NoUserInteraction()) }
}

/// Waits for a condition; records an issue if it does not come true.
func eventually(
    sourceLocation: SourceLocation = #_sourceLocation, _ condition: () async throws -> Bool
) async throws {
    let end = ContinuousClock.now + .seconds(600)
    while ContinuousClock.now < end {
        if try await condition() { return }
        try await Task.sleep(for: .milliseconds(2))
    }
    Issue.record("the condition does not come true", sourceLocation: sourceLocation)
}

/// Lets a service look at files all the time, but for while a test holds it back.
final class Looks: Sendable {
    private let areHeld = BlockingMutex(false)

    func hold() { areHeld.withLock { $0 = true } }
    func goOn() { areHeld.withLock { $0 = false } }

    func hold(_ body: () async throws -> Void) async throws {
        hold()
        try await body()
        goOn()
    }

    @Sendable func pass(_ time: Duration) async throws {
        repeat { try await Task.sleep(for: .milliseconds(5)) } while areHeld.withLock(\.self)
    }
}

/// Runs a service with the identity of a property file while `body` runs. It looks for changed files all the time.
func withService(
    _ properties: [String], in directory: TemporaryDirectory, _ log: TestLog, looks: Looks = Looks(),
    password: @escaping @Sendable () -> String = { "s3cret" },
    _ body: (CertprovLogon, RotatingCredentials) async throws -> Void
) async throws {
    let path = try directory.write(properties.joined(separator: "\n") + "\n", to: "service.properties")
    let logon = try CertprovLogon(
        configuredBy: path, logger: log.logger, secrets: SecretReader { $0 == "PASSWORD" ? password() : nil },
        store: IdentityStore(path: directory["state"]), looking: looks.pass, vaults: nil)
    let credentials = try await logon.credentials()
    let renewal = Task { try await logon.renewal.run() }
    defer { renewal.cancel() }
    try await body(logon, credentials)
}
