import CertificateProviding
import CertificateTLS
import FoundationEssentials

extension ListedIdentity {
    /// The state at `now`, as tables and documents show it: that of the whole chain, or `unusable`.
    func state(at now: Date) -> String {
        let status = status(at: now)
        return status == .valid && refusal(at: now) != nil ? "unusable" : status.rawValue
    }

    /// Why TLS, its peers or those who verify a signature refuse the identity, though the leaf is valid at `now`; `nil` if nothing speaks against it.
    /// Does not look at the private key.
    func refusal(at now: Date) -> ProviderError? {
        guard let leaf = certificateChain.first, leaf.status(at: now) == .valid else { return nil }
        do throws(ProviderError) {
            if usage == .signature {
                try leaf.requireUsableKeySize(provider: provider)
            } else {
                try TLSCredentials.check(certificateChain, of: provider)
            }
        } catch { return error }
        if usage == .signature, !leaf.permits(.signature) {
            return ProviderError(
                .certificateNotUsable,
                "The certificate of '\(leaf.subject)' cannot be used to sign: it has neither the key usage digitalSignature nor "
                    + "nonRepudiation. Have it issued with one.", provider: provider)
        }
        return obstacle(at: now).map { obstacle in
            let code: ProviderError.Code =
                switch status(at: now) {
                case .valid: .unsupportedAlgorithm
                case .expired: .expired
                case .notYetValid: .notFound
                }
            return ProviderError(
                code,
                "The certificate of '\(leaf.subject)' cannot be used: \(obstacle). Obtain another one with its chain.",
                provider: provider)
        }
    }
}
