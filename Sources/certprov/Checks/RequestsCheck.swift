import CertificateProviding
import FoundationEssentials
import Logon
import Signing
import SigningRequests
import Terminal

/// Checks the section `Signing.` of the property file.
struct RequestsCheck {
    private static let what = "signing requests"
    private let context: CommandContext
    private let settings: Parameters

    init(_ context: CommandContext, _ settings: Parameters) { (self.context, self.settings) = (context, settings) }

    /// Checks what signing requests need, and what a signature for an application permits it.
    ///
    /// - Parameter path: The property file.
    func run(_ manager: LogonManager, _ stored: Identity?, path: String?) async -> [Finding] {
        do throws(ProviderError) {
            let registry = try RequestRegistry(settings, secrets: context.secrets, path: path)
            if path != nil { _ = try TimeStampServer.configured(by: settings, context.timeStampEnvironment()) }
            guard !registry.clients.isEmpty else { return [] }
            var findings: [Finding] = [.ok(Self.what, "\(registry.clients.count) applications may ask")]
            if registry.asksPerson, let obstacle = await obstacle() { findings.append(obstacle) }
            findings += unattended(registry)
            let leaf =
                if let stored { stored.certificate } else {
                    await manager.chosenWithoutQuestion()?.certificateChain.first
                }
            if let leaf { findings += uses(of: leaf, registry) }
            return findings
        } catch { return [.error(Self.what, error)] }
    }

    /// Why no person can be asked; `nil` if one can. A program that is missing is an error. A terminal or a display may be there where
    /// the signer runs.
    func obstacle() async -> Finding? {
        let what = "\(Self.what) prompt"
        switch context.requestPrompt(settings) {
        case .queue: return nil
        case .terminal:
            guard !TerminalInteraction().canAsk else { return nil }
            return .warning(
                what,
                "This process has no terminal, and the prompt is terminal; set Signing.prompt to pinentry or queue, or use --prompt."
            )
        case .pinentry:
            do throws(ProviderError) { try context.pinentry.requireProgram() } catch { return .error(what, error) }
            do throws(ProviderError) { try await context.pinentry.requireScreen() } catch {
                return Finding.error(what, error).asWarning
            }
            return nil
        }
    }

    private func unattended(_ registry: RequestRegistry) -> [Finding] {
        registry.clients.values.filter { $0.unattended.contains(.signChallenge) }.sorted { $0.number < $1.number }.map {
            .warning(
                Self.what,
                "Client \($0.number), '\($0.name.withVisibleControls)', gets signatures of challenges without a person. A challenge is "
                    + "signed as it is: do so only for an application that may have the key. Else set its approval to ask."
            )
        }
    }

    private func uses(of leaf: X509Certificate, _ registry: RequestRegistry) -> [Finding] {
        var findings: [Finding] = []
        if leaf.isForTLS {
            findings.append(
                .warning(
                    Self.what,
                    "The certificate '\(leaf.subject)' may also be used for TLS: an application that gets a signature of another kind "
                        + "than it shows could speak as its owner. Sign requests with one for signatures alone (usage=signature)."
                ))
        }
        if registry.operations.contains(.signPDF), registry.userCode == nil, !RequestSteps.hasUserCode(leaf) {
            findings.append(
                .error(
                    "\(Self.what) user-code",
                    ProviderError(
                        .configurationInvalid,
                        "Each request for a document would get wrong-user-code: Signing.user-code is not set, and the subject of the "
                            + "certificate '\(leaf.subject)' has no serialNumber. Set Signing.user-code.")))
        }
        for operation in registry.operations.sorted(by: { $0.rawValue < $1.rawValue }) {
            do throws(ProviderError) { try operation.requireUsable(leaf, at: Date()) } catch {
                findings.append(.error("\(Self.what) \(operation.rawValue)", error))
            }
        }
        return findings
    }
}
