public import CertificateProviding
// One import is the purpose of this product too: the kit, and what a program that signs needs beside it.
@_exported public import CertprovKit
@_exported public import NamedKeys
@_exported public import PDFUpdate
@_exported public import Signing
@_exported public import SigningRequests

extension CertprovLogon {
    /// Returns the named key pairs: of the application of the property file, else of this host. Reads nothing yet. Ask again after
    /// a ``/CertprovKit/CertprovLogon/reload()``.
    ///
    /// - Parameter pinSource: The source of the PIN of the pairs' key store; `nil` for that of its URI.
    /// - Throws: Errors of this host's store.
    public func namedKeys(pinSource: SecretSource? = nil) throws(ProviderError) -> NamedKeys {
        NamedKeys(try manager.environment(of: NamedKeys.storageID), pinSource: pinSource)
    }
}
