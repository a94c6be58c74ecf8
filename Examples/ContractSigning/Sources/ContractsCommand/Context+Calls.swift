import CertificateProviding
import Contracts

extension Context {
    /// What tells calling programs the outcome, as the property file says.
    func callbacks() throws(ProviderError) -> CallbackJournal {
        CallbackJournal(
            try queue(), schemes: settings[ContractsSettings.callbackSchemes],
            opener: URLOpener(settings[ContractsSettings.urlOpener]))
    }

    /// Tells a calling program the outcome. What goes wrong is a warning.
    func tell(_ outcome: CallOutcome, to urls: CallbackURLs) async {
        do throws(ProviderError) {
            if let problem = try await callbacks().tell(outcome, to: urls) { remark(problem) }
        } catch {
            remark("The calling program is not told: \(error.message)")
        }
    }

    /// Opens the callbacks that a process has left behind, which was killed while it opened one. An error of the queue is the
    /// subcommand's to report.
    func resumeCallbacks() async {
        guard let callbacks = try? callbacks() else { return }
        for problem in await callbacks.resume() { remark(problem) }
    }

    /// The program that makes the PDF of a template; `nil` without `Contracts.renderer`.
    func renderer() -> ContractFile.Renderer? {
        guard let program = settings[ContractsSettings.renderer] else { return nil }
        return ProgramRenderer(program).pdf
    }
}
