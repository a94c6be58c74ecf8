import CertificateProviding
import FoundationEssentials
import IdentityStore
import Logging
import ProviderTransport
import Synchronization

/// Proves to the server that the names are this host's, for as long as authorisations are pending.
final class ChallengeResponder: Sendable {
    private struct State {
        var listener: ChallengeListener?
        /// The URLs of the challenges whose answers are in place.
        var begun: Set<String> = []
        /// Those that the server was told of.
        var submitted: Set<String> = []
    }
    private let state = Mutex(State())
    private let settings: ACMESettings
    private let environment: ProviderEnvironment
    private var journal: ChallengeJournal { ChallengeJournal(settings, environment) }

    init(_ settings: ACMESettings, _ environment: ProviderEnvironment) {
        (self.settings, self.environment) = (settings, environment)
    }

    /// Puts the answers in place. One that is there stays.
    ///
    /// - Throws: `operationNotAllowed` and `configurationInvalid` for a port that cannot be opened, `unavailable` and `timedOut` for a program that fails,
    ///   `storeWriteFailed` for a file that cannot be written.
    func begin(_ answers: [ChallengeAnswer]) async throws(ProviderError) {
        let new = state.withLock { state in answers.filter { !state.begun.contains($0.url) } }
        guard !new.isEmpty else { return }
        switch settings.challenge {
        case .http:
            if let root = settings.httpRoot {
                try await write(new, below: root)
            } else {
                try await listen(new, .http, settings.httpListen, "http-listen")
            }
        case .tlsALPN: try await listen(new, .tls, settings.tlsListen, "tls-listen")
        case .dns:
            guard let hook = settings.dnsHook else { return }
            try await publish(new, by: hook)
        case .deviceAttest, .none: break
        }
        state.withLock { $0.begun.formUnion(new.map(\.url)) }
    }

    /// Whether the server has to be told that an answer is in place.
    func needsSubmission(_ answer: ChallengeAnswer) -> Bool {
        !answer.isProcessing && !state.withLock { $0.submitted.contains(answer.url) }
    }

    func noteSubmission(of answer: ChallengeAnswer) { _ = state.withLock { $0.submitted.insert(answer.url) } }

    /// Whether ``begin(_:)`` has put an answer in place.
    func isInPlace(_ answer: ChallengeAnswer) -> Bool { state.withLock { $0.begun.contains(answer.url) } }

    /// Removes all answers, also those of a run that was killed.
    ///
    /// - Parameter warns: Whether failures are logged as warnings; else for debugging only.
    func cleanUp(warns: Bool = true) async {
        let listener = state.withLock { state in
            defer { (state.listener, state.begun) = (nil, []) }
            return state.listener
        }
        await listener?.close()
        do throws(ProviderError) {
            try await environment.executor.run { [journal] () throws(ProviderError) in
                try journal.cleanUp(warns: warns)
            }
        } catch {
            environment.logger.warning(
                "the record of challenges could not be updated", metadata: ["reason": "\(error.message)"])
        }
    }

    private func listen(
        _ answers: [ChallengeAnswer], _ kind: ChallengeListener.Kind, _ address: ListenAddress, _ parameter: String
    ) async throws(ProviderError) {
        let known = state.withLock(\.listener)
        let listener =
            if let known { known } else {
                try await ChallengeListener.open(
                    kind, address, parameter, on: environment.transport.network.eventLoopGroup)
            }
        state.withLock { $0.listener = listener }
        try listener.answer(answers, at: environment.now())
    }

    private func publish(_ answers: [ChallengeAnswer], by hook: String) async throws(ProviderError) {
        try await environment.executor.run { [journal] () throws(ProviderError) in
            for answer in answers {
                try journal.note([.record(hook: hook, name: answer.recordName, value: answer.recordValue)])
                do throws(ProviderError) {
                    try DNSHook(hook).run("add", answer.recordName, answer.recordValue)
                } catch {
                    var error = error
                    error.message += " The next attempt goes on with the same order."
                    throw error
                }
            }
        }
    }

    /// Writes the files that a web server serves, readable by it.
    private func write(_ answers: [ChallengeAnswer], below root: String) async throws(ProviderError) {
        try await environment.executor.run { [journal] () throws(ProviderError) in
            for answer in answers {
                // The server chooses the token: base64url, as ChallengeAnswer has checked.
                let file = PublishedFile(in: root + "/.well-known/acme-challenge", named: answer.token)
                try journal.note([.file(file.path)])
                do throws(ProviderError) {
                    // The root itself must be there: a mistake in its name must not make another one.
                    try file.write(Array(answer.keyAuthorization.utf8), below: root)
                } catch {
                    throw ProviderError(
                        .storeWriteFailed,
                        """
                        The answer to a challenge cannot be written: \(error.message) Check 'http-root', and in a unit \
                        of systemd ReadWritePaths= and the directory's owner.
                        """)
                }
            }
        }
    }
}
