public import CertificateProviding
import Enrolment
import ProviderTransport
public import Synchronization

/// A server in memory, which outlives the processes that talk to it.
public final class InventedServer: Sendable {
    public enum Decision: Sendable { case waiting, refused, issued(X509Certificate) }

    public struct State: Sendable {
        public var pass = SecretBytes(utf8: "open sesame")
        /// The number of looks at a ticket before the server decides.
        public var looks = 0
        public var refuses = false
        public var refusesAcceptance = false
        public var keyType: KeyType?
        /// The delay that the server names while it has not decided.
        public var retryAfter: Duration?
        /// The common name that is issued for, instead of the requested one.
        public var subject: String?
        /// Whether a renewal is refused where a first enrolment is not.
        public var hasForgottenRenewals = false
        /// The next call fails so.
        public var failure: ProviderError?
        fileprivate var tickets: [[UInt8]: (Decision, looks: Int)] = [:]
        public fileprivate(set) var heard: [String] = []
        public fileprivate(set) var requests: [[UInt8]] = []
        public fileprivate(set) var issued: [X509Certificate] = []
        public fileprivate(set) var accepted = 0
    }

    public let name = "invented.example"
    public let state = Mutex(State())
    private let authority: TestAuthority
    /// Called before each answer, and after it: a process may end there.
    private let step: @Sendable () throws(ProviderError) -> Void

    public init(step: @escaping @Sendable () throws(ProviderError) -> Void = {}) throws {
        authority = try TestAuthority("Invented")
        self.step = step
    }

    var authorities: [X509Certificate] { [authority.root, authority.intermediate] }
    var pass: SecretBytes { state.withLock(\.pass) }
    var retryAfter: Duration? { state.withLock(\.retryAfter) }
    var keyType: KeyType? { state.withLock(\.keyType) }
    var hasForgottenRenewals: Bool { state.withLock(\.hasForgottenRenewals) }

    /// Decides on all tickets.
    public func decide() { state.withLock { $0.tickets = $0.tickets.mapValues { ($0.0, looks: 0) } } }

    /// All tickets are lost.
    public func forgetTickets() { state.withLock { $0.tickets = [:] } }

    func knows(_ ticket: [UInt8]) -> Bool { state.withLock { $0.tickets[ticket] != nil } }

    func hear(_ call: String) throws(ProviderError) {
        try step()
        try state.withLock { state throws(ProviderError) in
            state.heard.append(call)
            if let failure = state.failure { throw failure }
        }
        try step()
    }

    func submit(
        _ ticket: [UInt8], _ request: CertificateRequest, of names: CertificateRequest.Names, for key: PublicKeyInfo
    ) throws(ProviderError) {
        try hear("submit")
        state.withLock { state in
            state.requests.append(request.derRepresentation)
            state.tickets[ticket] = (.waiting, state.looks)
        }
        let isRefused = state.withLock(\.refuses)
        guard !isRefused else { return state.withLock { $0.tickets[ticket] = (.refused, $0.looks) } }
        do {
            let leaf = try authority.certify(
                key.derRepresentation, as: state.withLock(\.subject) ?? names.commonName ?? "")
            state.withLock { state in
                state.issued.append(leaf)
                state.tickets[ticket] = (.issued(leaf), state.looks)
            }
        } catch {
            throw ProviderError(.internal, "The server cannot issue.", underlying: error)
        }
        try step()
    }

    func look(_ ticket: [UInt8]) throws(ProviderError) -> Decision {
        try hear("look")
        return state.withLock { state in
            guard var found = state.tickets[ticket] else { return .waiting }
            found.looks -= 1
            state.tickets[ticket] = found
            return found.looks < 0 ? found.0 : .waiting
        }
    }

    func accept(_ ticket: [UInt8]) throws(ProviderError) {
        try hear("accept")
        try state.withLock { state throws(ProviderError) in
            if state.refusesAcceptance { throw ProviderError(.rejected, "The server takes it back.") }
            state.accepted += 1
        }
    }
}

extension InventedServer {
    /// Enrols into a key store, waits for a decision, is refused, renews, and deletes.
    ///
    /// - Parameter environment: `PASS` has the pass phrase.
    public func checkEnrolment(
        in environment: ProviderEnvironment, key: String, pinSource: String? = nil
    ) async throws {
        var environment = environment
        let clock = Mutex(ContinuousClock.now)
        environment.transport.retryPolicy = RetryPolicy(
            now: { clock.withLock(\.self) }, sleep: { length in clock.withLock { $0 += length } })
        var parameters = ["subject": "CN=host17,O=certprov tests", "key": key, "pass": "env:PASS"]
        parameters["key-pin-source"] = pinSource
        let made = try InventedProvider.descriptor(self).makeProvider(
            environment, ProviderParameters(parameters.mapValues { .init($0) }))
        let (provider, person) = (try require(made as? EnrollingProvider, "the engine's provider"), NoUserInteraction())
        state.withLock { $0.looks = 1000 }
        try await requireFailure(.pending) { _ = try await provider.getCertificate(person) }
        decide()
        state.withLock { $0.looks = 0 }
        let first = try await provider.getCertificate(person)
        try await first.verifyPossession()
        state.withLock { $0.refuses = true }
        try await requireFailure(.rejected) { _ = try await provider.getCertificate(person) }
        try require(try provider.getStoredCertificate()?.certificate == first.certificate, "the old identity stays")
        state.withLock { $0.refuses = false }
        let second = try await provider.getCertificate(person)
        try await provider.discardReplaced(by: second, person)
        try await requireFailure(nil) { try await first.verifyPossession() }
        try await second.verifyPossession()
        try require(
            state.withLock { $0.issued.count == 2 && Set($0.requests).count == 3 }, "three requests, two issued")
        try provider.deleteStoredCertificate()
        try require(try provider.getStoredCertificate() == nil, "the deletion")
        await provider.shutdown()
    }
}

/// TestSupport is part of programs, which know no expectations.
private struct Unmet: Error, CustomStringConvertible { let description: String }

private func require(_ condition: Bool, _ name: String) throws { if !condition { throw Unmet(description: name) } }

private func require<Value>(_ value: Value?, _ name: String) throws -> Value {
    guard let value else { throw Unmet(description: name) }
    return value
}

private func requireFailure(
    _ code: ProviderError.Code?, _ body: () async throws -> Void
) async throws {
    do { try await body() } catch let error as ProviderError {
        return try require(code == nil || error.code == code, "\(error)")
    }
    throw Unmet(description: "an error")
}
