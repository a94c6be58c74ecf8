import CertificateProviding
import SigningRequests
import Terminal

/// Asks about a request at the controlling terminal.
struct TerminalPrompt: ApprovalPrompt {
    let name = "terminal"

    func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(CertificateProviderError) -> ApprovalAnswer {
        let interaction = TerminalInteraction(
            orElse: "set Signing.prompt to pinentry or queue, or use --prompt pinentry")
        let asking = Task { () -> Result<Bool, CertificateProviderError> in
            do throws(CertificateProviderError) {
                return .success(
                    try await interaction.confirm("Sign?", after: question.text.split(separator: "\n").map(String.init))
                )
            } catch { return .failure(error) }
        }
        let timer = Task {
            try await Task.sleep(for: time)
            asking.cancel()
        }
        defer { timer.cancel() }
        let result = await withTaskCancellationHandler {
            await asking.value
        } onCancel: {
            asking.cancel()
        }
        switch result {
        case .success(let isApproved): return isApproved ? .approved : .declined
        case .failure(let error) where error.code == .userCancelled: return asking.isCancelled ? .timedOut : .declined
        case .failure(let error): throw error
        }
    }
}
