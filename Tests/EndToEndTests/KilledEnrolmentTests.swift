import CertificateProviding
import Enrolment
import Foundation
import Glibc
import IdentityStore
import RemoteMDMProvider
import TestSupport
import Testing

@testable import PluginHost

/// The command is killed while it enrols and while it renews, with the moments spread over its whole run: a thousand times
/// in `make soak`.
@Suite struct KilledEnrolmentTests {
    private static let rounds = TestLength.rounds(15, full: 40, soak: 500)

    @Test("An enrolment that is killed at any moment loses no key and no identity", arguments: [false, true])
    func whateverTheMomentNothingIsLost(isRenewal: Bool) async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let enrolment = try KilledEnrolment(server, isRenewal: isRenewal)
        if isRenewal { try await enrolment.complete() }
        var kills = KillMoments(Self.rounds, within: try await enrolment.complete())
        var rounds = 0
        // Longer where no kill has come between the server's answer and its storage yet.
        while kills.areLeft || !enrolment.hasBeenKilledLate && rounds < 1000 {
            try await enrolment.kill(&kills)
            rounds += 1
            // The run that goes on has to come to its end.
            if rounds.isMultiple(of: 10) { try await enrolment.complete() }
        }
        try await enrolment.complete()
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        try enrolment.check()
    }
}

/// An identity that is fetched again and again, and the server that keeps count.
private final class KilledEnrolment {
    private let server: ESTServer
    private let isRenewal: Bool
    private let sandbox = Result { try Sandbox() }
    private let provider: EnrollingProvider
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
            "timeout": "600",
        ]
        command =
            [BuiltCommand.path, "fetch", "--provider", "mdm"] + (isRenewal ? ["--force"] : [])
            + settings.flatMap { ["--set", "\($0.key)=\($0.value)"] }
        // Reads what the command has stored, without a process for it.
        let store = IdentityStore(path: sandbox.store)
        var storage = store.storage(for: RemoteMDMProvider.id)
        if BuiltCommand.isPlugged {
            let names = RemoteMDMProvider.descriptor.parameters.filter(\.distinguishes).map(\.name)
            storage = ConfigurationStorage(storage, distinguishedBy: settings.filter { names.contains($0.key) })
        }
        var environment = ProviderEnvironment.testing(storage: storage)
        environment.keyStores = try ProviderRegistry(keyStores: [SealedKeyStore.descriptor]).keyStores { id in
            .testing(storage: store.storage(for: id))
        }
        provider = try RemoteMDMProvider.make(
            environment: environment,
            parameters: ProviderParameters(settings.mapValues { .init($0) }))
    }

    /// Lets the command come to its end.
    /// - Returns: How long that took.
    @discardableResult func complete() async throws -> Duration {
        let start = ContinuousClock.now
        try sandbox.get().run(command).expect()
        let length = ContinuousClock.now - start
        let before = arrived.count
        try await look()
        #expect(arrived.count == before + 1)
        return length
    }

    func kill(_ kills: inout KillMoments) async throws {
        _ = kills.kill(try sandbox.get().start(command))
        try await look()
    }

    /// The identity works, the old one or the new one. If it is not renewed, it goes when it has arrived.
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
