import CertificateProviding
import CertificateTLSCore

extension Enrolment {
    /// How far an enrolment has come: what an error means for its key depends on that.
    enum Stage {
        /// The server has not been asked for a certificate. With the key that was made for that in this run, if one
        /// was.
        case before(PendingEnrolment?)
        /// It has been asked, and may have issued.
        case asking(PendingEnrolment, isNew: Bool)
        /// It has answered.
        case answered(PendingEnrolment)
        /// The answer is good.
        case done

        /// The request that is at its end with an error: there is no use in asking again with the same key. Others are
        /// asked for again: their answer may have been lost, or the server may have to decide still.
        func abandoned(after error: CertificateProviderError) -> PendingEnrolment? {
            switch self {
            case .before(let new): error.isPassing ? nil : new
            case .asking(let pending, let isNew):
                error.isFinalRefusal || (isNew && !pending.isUndecided && error.isRefusal) ? pending : nil
            case .answered(let pending): error.isPassing ? nil : pending
            case .done: nil
            }
        }
    }
}

extension CertificateProviderError {
    fileprivate var isPassing: Bool {
        [.pending, .timedOut, .unavailable, .userCancelled, .tokenNotPresent, .interactionRequired].contains(code)
    }

    /// Where a server has refused a certificate in the TLS handshake, says which one that was.
    ///
    /// - Parameter isOwn: Whether the server itself has issued it once.
    func naming(_ shown: X509Certificate, isOwn: Bool) -> Self {
        guard code == .rejected, let number = nativeCode.flatMap(UInt8.init(exactly:)),
            TLSAlert(rawValue: number).refusesCertificate
        else { return self }
        var copy = self
        copy.message +=
            isOwn
            ? " It was shown the one that is to be renewed, '\(shown.subject)'; where the server has another authority by "
                + "now, delete the identity and enrol anew."
            : " It was shown that of 'client-certificate', '\(shown.subject)'; see whether the server knows its authority, "
                + "and whether the certificates in between are in the file."
        return copy
    }

    /// Whether the server does not want the request, or not from us.
    fileprivate var isRefusal: Bool { [.rejected, .configurationInvalid, .unsupportedAlgorithm].contains(code) }

    private static let failInfos = 0...20
    private static let clientErrors = 400...499

    /// Whether the server has looked at the request itself and refused it: SCEP's failInfo, or a status of HTTP that
    /// says nothing about us, the place or the moment.
    fileprivate var isFinalRefusal: Bool {
        guard code == .rejected, let number = nativeCode else { return false }
        // Other numbers are those of TLS, which refuses a certificate, and of tokens.
        let isOfRequest = Self.failInfos.contains(number) || Self.clientErrors.contains(number)
        return isOfRequest && ![401, 403, 404, 405, 407, 408, 410, 429].contains(number)
    }
}

extension KeyType {
    /// Whether a public key is of this kind.
    func fits(_ key: PublicKeyInfo) -> Bool {
        switch self {
        case .p256: key.curve == "P-256"
        case .p384: key.curve == "P-384"
        case .p521: key.curve == "P-521"
        case .ed25519: key.algorithm == .ed25519
        case .rsa2048: key.algorithm == .rsa && key.bits == 2048
        case .rsa3072: key.algorithm == .rsa && key.bits == 3072
        case .rsa4096: key.algorithm == .rsa && key.bits == 4096
        default: false
        }
    }
}
