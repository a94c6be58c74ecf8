import CertificateProviding
import CertificateTLS

extension Enrolment {
    /// The progress of an enrolment. It decides what an error means for the key.
    enum Stage {
        /// No request was sent. The value is the enrolment whose key this run has made, if it has made one.
        case before(PendingEnrolment?)
        /// The request was sent; the server may have issued.
        case asking(PendingEnrolment, isNew: Bool)
        /// The server has answered.
        case answered(PendingEnrolment)
        /// The issued certificate was accepted.
        case done

        /// Returns the enrolment that an error ends for good, since another request with the same key would fail, too;
        /// `nil` if the request is to be repeated: the answer may have been lost, or the server may still have to
        /// decide.
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

    /// Adds to a refusal in the TLS handshake which certificate the server has refused.
    ///
    /// - Parameter isOwn: Whether the server itself has issued the certificate.
    func naming(_ shown: X509Certificate, isOwn: Bool) -> Self {
        guard code == .rejected, !(underlying is SCEPFailure), let number = nativeCode.flatMap(UInt8.init(exactly:)),
            TLSAlert(rawValue: number).refusesCertificate
        else { return self }
        var copy = self
        copy.message +=
            isOwn
            ? " The refused certificate is the one to be renewed, '\(shown.subject)'. If the server has changed its "
                + "CA, delete the identity and enrol again."
            : " The refused certificate is that of 'client-certificate', '\(shown.subject)'. Check that the server "
                + "trusts its CA, and that the file contains the intermediate certificates."
        return copy
    }

    /// Whether the server refuses the request, or this client.
    fileprivate var isRefusal: Bool { [.rejected, .configurationInvalid, .unsupportedAlgorithm].contains(code) }

    private static let clientErrors = 400...499

    /// Whether the server has processed the request and refused it: a failInfo of SCEP, or an HTTP status that does not
    /// mean the client's credentials, the URL or the load.
    fileprivate var isFinalRefusal: Bool {
        guard code == .rejected, let number = nativeCode else { return false }
        // Other numbers are those of TLS, which refuses a certificate, and of tokens.
        if underlying is SCEPFailure { return true }
        return Self.clientErrors.contains(number) && ![401, 403, 404, 405, 407, 408, 410, 429].contains(number)
    }
}
