public import CertificateProviding
public import FoundationEssentials

extension Identity {
    /// Checks that this identity can be used wherever the one can that it is to replace: peers do not refuse it
    /// (``/CertificateProviding/Identity/requireUsable(toReplace:at:)``), and TLS on this host takes it
    /// (``TLSCredentials``). A provider calls this before it stores an identity: a service that finds one that TLS
    /// refuses does not start again.
    ///
    /// Reads exportable keys, which may block. No key signs.
    ///
    /// - Parameter current: The identity that is stored now.
    /// - Throws: `pending` if the chain is not valid now; errors of ``TLSCredentials/init(_:)``. The present identity
    ///   should then stay.
    public func requireUsableInTLS(toReplace current: Identity, at now: Date) throws(ProviderError) {
        try requireUsable(toReplace: current, at: now)
        do throws(ProviderError) {
            _ = try TLSCredentials(self)
        } catch {
            // If TLS takes neither of both, which may be for signatures, the new one counts.
            guard certificateChain != current.certificateChain, (try? TLSCredentials(current)) != nil else { return }
            var error = error
            error.message += " The stored one can be used, and stays in use."
            throw error
        }
    }
}
