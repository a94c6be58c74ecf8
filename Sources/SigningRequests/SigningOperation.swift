/// The signature that a request is for: the host of its URL.
public enum SigningOperation: String, CaseIterable, Sendable {
    /// A PDF gets a signature with a time stamp.
    case signPDF = "sign-pdf"
    /// Bytes are signed as they are: ECDSA with P-256 and SHA-256.
    case signChallenge = "sign-challenge"

    /// The item of a request that has the data.
    public var dataItem: String { self == .signPDF ? "document" : "challenge" }

    /// The word for data that cannot be read or must not be signed.
    package var processingError: RequestWord {
        self == .signPDF ? .documentProcessingError : .challengeProcessingError
    }

    /// The word for a signature that cannot be made.
    package var signingError: RequestWord { self == .signPDF ? .signDocumentError : .signChallengeError }
}
