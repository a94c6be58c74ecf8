import CertificateProviding
import FoundationEssentials
import SigningRequests
import Terminal

/// Asks about a request at the controlling terminal.
struct TerminalPrompt: ApprovalPrompt {
    let name = "terminal"
    /// The last line of the question.
    var asking = "Sign?"

    func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(ProviderError) -> ApprovalAnswer {
        let end = ContinuousClock.now + time
        var text = question.consent
        while true {
            switch try await key(text, Self.keys(question), until: end) {
            case "y": return .approved
            case "o": text = await Self.opening(question.documentPath)
            case "l": text = await Self.opening(question.logoPath)
            case "n": return .declined
            default: return .timedOut
            }
        }
    }

    /// The files that can be shown: a terminal shows no picture.
    private static func keys(_ question: SigningQuestion) -> KeyValuePairs<Character, String> {
        let hasWindows = ["DISPLAY", "WAYLAND_DISPLAY"].contains {
            ProcessInfo.processInfo.environment[$0]?.isEmpty == false
        }
        return switch (question.documentPath != nil, hasWindows && question.logoPath != nil) {
        case (true, true): ["o": "opens the document", "l": "shows the logo"]
        case (true, false): ["o": "opens the document"]
        case (false, true): ["l": "shows the logo"]
        case (false, false): [:]
        }
    }

    /// Opens a file, and returns what to say before the question is asked again.
    private static func opening(_ path: String?) async -> ConsentText {
        var text = ConsentText(sentence: "Opened.", facts: [], heading: "", claims: [])
        do throws(ProviderError) { try await ReplyOpener.show(path ?? "") } catch {
            text.sentence = error.message
        }
        return text
    }

    /// Asks once.
    ///
    /// - Returns: `nil` when the time is up, or the request is not to be answered any more.
    private func key(
        _ text: ConsentText, _ keys: KeyValuePairs<Character, String>, until end: ContinuousClock.Instant
    ) async throws(ProviderError) -> Character? {
        let interaction = TerminalInteraction(
            orElse: "set Signing.prompt to pinentry or queue, or use --prompt pinentry")
        let asking = Task { [question = self.asking] () -> Result<Character, ProviderError> in
            do throws(ProviderError) {
                return .success(try await interaction.answer(to: question, about: text, keys: keys))
            } catch { return .failure(error) }
        }
        let timer = Task {
            try await Task.sleep(until: end, clock: .continuous)
            asking.cancel()
        }
        defer { timer.cancel() }
        let result = await withTaskCancellationHandler {
            await asking.value
        } onCancel: {
            asking.cancel()
        }
        switch result {
        case .success(let key): return key
        case .failure(let error) where error.code == .userCancelled: return asking.isCancelled ? nil : "n"
        case .failure(let error): throw error
        }
    }
}
