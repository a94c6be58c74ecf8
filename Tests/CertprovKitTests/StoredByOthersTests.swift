import CertprovKit
import Foundation
import ServiceLifecycle
import TestSupport
import Testing

/// A running service takes what the command, or another service, has stored.
@Suite(.timeLimit(.minutes(20))) struct StoredByOthersTests {
    private static let issuer = ProviderID("issuer")
    private let directory: TemporaryDirectory
    private let authority: TestAuthority
    private let log = TestLog()

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    /// Returns a service, or the command, whose provider issues until a moment.
    private func logon(_ name: String, until end: Date = Date(timeIntervalSinceNow: 86_400)) throws -> CertprovLogon {
        let path = directory["service.properties"]
        try Data("CertificateProvider = issuer\n".utf8).write(to: URL(filePath: path))
        let descriptor = ProviderDescriptor(
            id: Self.issuer, displayName: "Issuer", summary: "Test.", parameters: []
        ) { [authority] environment, _ in
            StoringProvider(Self.issuer, environment.storage) {
                try authority.issue(name, notBefore: min(end, Date()) - 3600, notAfter: end, provider: Self.issuer)
            }
        }
        return try CertprovLogon(
            configuredBy: path, adding: [descriptor], logger: log.logger, secrets: SecretReader { _ in nil },
            store: IdentityStore(path: directory["state"]),
            looking: { _ in try await Task.sleep(for: .milliseconds(5)) }, vaults: nil)
    }

    @Test("An identity that another process has stored is taken, of any provider, and without a request to its server")
    func anIdentityOfAnotherProcess() async throws {
        let service = try logon("of the service")
        let credentials = try await service.credentials()
        func name() -> String { credentials.current.identity.certificate.subject }
        #expect(name().contains("of the service"))
        let renewal = Task { try await service.renewal.run() }
        defer { renewal.cancel() }
        for number in 1...3 {
            // fetch --force
            let fetched = try await logon("of command \(number)").manager.obtainIdentity(NoUserInteraction())
            try await eventually { name() == fetched.certificate.subject }
        }
        // One that peers refuse is not taken, and reported once.
        _ = try await logon("over", until: Date(timeIntervalSinceNow: -60)).manager.obtainIdentity(NoUserInteraction())
        try await eventually { log.text.contains("the stored identity is not taken") }
        #expect(name().contains("of command 3"))
        let last = try await logon("of command 4").manager.obtainIdentity(NoUserInteraction())
        try await eventually { name() == last.certificate.subject }
        let reports = log.lines.filter { $0.text.contains("the stored identity is not taken") }
        #expect(reports.count == 1, "\(log.text)")
        // A deletion takes nothing away from those who use it.
        try await logon("").manager.deleteStoredCertificates()
        let next = try await logon("of command 5").manager.obtainIdentity(NoUserInteraction())
        try await eventually { name() == next.certificate.subject }
    }
}
