import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import RemoteMDMProvider
import TestSupport
import Testing

/// The command is killed while it enrols and while it renews, with the moments spread over its whole run: a thousand times
/// in `make soak`.
@Suite struct KilledEnrolmentTests {
    private static let rounds = TestLength.rounds(40, soak: 500)

    @Test("An enrolment that is killed at any moment loses no key and no identity", arguments: [false, true])
    func whateverTheMomentNothingIsLost(isRenewal: Bool) async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let enrolment = try KilledEnrolment(server, isRenewal: isRenewal)
        if isRenewal { _ = try await enrolment.complete() }
        var (killed, length) = (0, try await enrolment.complete())
        var rounds = 0
        // Longer where no kill has come between the server's answer and its storage yet.
        while rounds < Self.rounds || !enrolment.hasBeenKilledLate && rounds < 1000 {
            // The golden ratio's multiples fall evenly, in whatever number.
            let share = (Double(rounds) * 0.618034).truncatingRemainder(dividingBy: 1)
            if try await enrolment.kill(after: length * share) { killed += 1 }
            // The run that goes on has to come to its end, and says how long that takes while so much else is going on.
            if rounds % 10 == 9 { length = try await enrolment.complete() }
            rounds += 1
        }
        _ = try await enrolment.complete()
        #expect(killed > rounds / 3, "only \(killed) of \(rounds) were killed in time")
        try enrolment.check()
    }
}

/// An identity that is fetched again and again, and the server that keeps count.
private final class KilledEnrolment {
    private let server: ESTServer
    private let isRenewal: Bool
    private let sandbox = Result { try Sandbox() }
    private let provider: RemoteMDMProvider
    private let command: [String]
    private var current: X509Certificate?
    private var arrived: [X509Certificate] = []

    init(_ server: ESTServer, isRenewal: Bool) throws {
        self.server = server
        self.isRenewal = isRenewal
        let sandbox = try sandbox.get()
        let password = try sandbox.write(ESTServer.password.utf8, to: "password")
        let settings = [
            "protocol": "est", "url": "https://localhost:\(server.port)", "trust-anchors": server.directory["ca.pem"],
            "username": ESTServer.user, "password-source": "file:\(password)", "subject": "CN=host,O=Example",
            "timeout": "30",
        ]
        command =
            [BuiltCommand.path, "fetch", "--provider", "mdm"] + (isRenewal ? ["--force"] : [])
            + settings.flatMap { ["--set", "\($0.key)=\($0.value)"] }
        // Reads what the command has stored, without a process for it.
        let store = IdentityStore(path: sandbox.store)
        var environment = ProviderEnvironment.testing(storage: store.storage(for: RemoteMDMProvider.id))
        environment.keyStores = try ProviderRegistry(keyStores: [SealedKeyStore.descriptor]).keyStores { id in
            .testing(storage: store.storage(for: id))
        }
        provider = try RemoteMDMProvider(
            environment: environment,
            parameters: ProviderParameters(settings.mapValues { .init($0) }))
    }

    /// Lets the command come to its end.
    /// - Returns: How long that took.
    func complete() async throws -> Duration {
        let start = ContinuousClock.now
        let output = try sandbox.get().run(command)
        #expect(output.status == 0, "\(output)")
        let length = ContinuousClock.now - start
        let before = arrived.count
        try await look()
        #expect(arrived.count == before + 1)
        return length
    }

    /// - Returns: Whether it was at work still.
    func kill(after delay: Duration) async throws -> Bool {
        let process = try sandbox.get().start(command)
        // Not a wait for anything: where the kill lands is the point.
        usleep(UInt32(delay.components.attoseconds / 1_000_000_000_000 + delay.components.seconds * 1_000_000))
        process.kill()
        let wasKilled = process.wait().signal == SIGKILL
        try await look()
        return wasKilled
    }

    /// The identity works, the old one or the new one. Where it is not renewed, it goes when it has arrived.
    private func look() async throws {
        let identity = try provider.getStoredCertificate()
        #expect(identity != nil || !isRenewal || arrived.isEmpty)
        guard let identity, identity.certificate != current else { return }
        try await identity.verifyPossession()
        arrived.append(identity.certificate)
        current = identity.certificate
        if !isRenewal { try provider.deleteStoredCertificate() }
    }

    /// Whether the server has issued a certificate that did not arrive.
    var hasBeenKilledLate: Bool { server.issued > arrived.count }

    /// Every key that the server has heard of has arrived with a certificate, one after the other: none was given up
    /// for another. So there was never more than one certificate that the client did not know.
    func check() throws {
        let requests = try server.requests()
        var heard: [String] = []
        var keys: [String: String] = [:]
        for request in requests {
            guard let key = request["csr_key_sha256"] as? String else { continue }
            if !heard.contains(key) { heard.append(key) }
            if let serial = request["serial"] as? String { keys[serial] = key }
        }
        let known = arrived.map { keys[$0.serialNumberText] ?? "unknown" }
        #expect(known == heard)
        #expect(hasBeenKilledLate, "no key was sent twice")
    }
}
