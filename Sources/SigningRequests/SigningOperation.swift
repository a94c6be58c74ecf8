package import CertificateProviding
package import FoundationEssentials
import Signing

/// The signature that a request is for: the host of its URL.
public enum SigningOperation: String, CaseIterable, Sendable {
    /// A PDF gets a signature with a time stamp.
    case signPDF = "sign-pdf"
    /// Bytes are signed as they are: ECDSA with P-256 and SHA-256.
    case signChallenge = "sign-challenge"

    /// The item of a request that has the data.
    package var dataItem: String { self == .signPDF ? "document" : "challenge" }

    /// The code for data that cannot be read or must not be signed.
    package var processingError: ResponseCode {
        self == .signPDF ? .documentProcessingError : .challengeProcessingError
    }

    /// The code for a signature that cannot be made.
    package var signingError: ResponseCode { self == .signPDF ? .signDocumentError : .signChallengeError }
}

extension SigningOperation {
    /// Checks that a certificate is valid, and may make these signatures.
    ///
    /// - Throws: `certificateNotUsable`.
    package func requireUsable(_ leaf: X509Certificate, at date: Date) throws(ProviderError) {
        try Signer.requireUsable(leaf, at: date)
        func refusal(_ reason: String) -> ProviderError {
            ProviderError(.certificateNotUsable, "The certificate '\(leaf.subject)' cannot sign: \(reason).")
        }
        switch self {
        case .signChallenge:
            guard leaf.publicKey.algorithm == .ec, leaf.publicKey.curve == "P-256" else {
                throw refusal("challenges are signed with a P-256 key, and its key is \(leaf.publicKey.displayName)")
            }
            guard leaf.permitsDigitalSignature else {
                throw refusal("its key usage does not permit digitalSignature")
            }
        case .signPDF:
            guard [.ec, .rsa].contains(leaf.publicKey.algorithm) else {
                throw refusal("readers of PDF do not verify \(leaf.publicKey.displayName)")
            }
        }
    }
}
