public import CertificateProviding

/// The `message` of a reply that refuses a request, and what a caller makes of a reply that is not accepted. Words of the
/// protocol, not error codes; open, since a signer may have others.
public struct RequestWord: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }
    public var description: String { rawValue }

    // Of a signer
    /// The request is not a URL whose host is an operation. Of a caller: the reply's host is not the request's.
    public static let wrongOperationType = Self(rawValue: "wrong-operation-type")
    public static let emptyData = Self(rawValue: "empty-data")
    public static let documentProcessingError = Self(rawValue: "document-processing-error")
    public static let challengeProcessingError = Self(rawValue: "challenge-processing-error")
    public static let emptyService = Self(rawValue: "empty-service")
    public static let emptyClientID = Self(rawValue: "empty-client-id")
    public static let emptySignature = Self(rawValue: "empty-signature")
    public static let emptyUserCode = Self(rawValue: "empty-user-code")
    public static let wrongLogoFormat = Self(rawValue: "wrong-logo-format")
    public static let wrongLogoSize = Self(rawValue: "wrong-logo-size")
    public static let validateRequestError = Self(rawValue: "validate-request-error")
    public static let wrongUserCode = Self(rawValue: "wrong-user-code")
    public static let signDocumentError = Self(rawValue: "sign-document-error")
    public static let signChallengeError = Self(rawValue: "sign-challenge-error")
    public static let operationCanceled = Self(rawValue: "operation-canceled")
    public static let approveRequestError = Self(rawValue: "approve-request-error")
    public static let timestampRequestError = Self(rawValue: "timestamp-request-error")
    public static let internalError = Self(rawValue: "internal-error")

    // Of a caller
    public static let emptyResponse = Self(rawValue: "empty-response")
    public static let parseURLError = Self(rawValue: "parse-url-error")
    public static let certificateParseError = Self(rawValue: "certificate-parse-error")
    public static let publicKeyCopyError = Self(rawValue: "public-key-copy-error")
    public static let signatureVerificationError = Self(rawValue: "signature-verification-error")
}

extension RequestWord {
    /// The word in a sentence, and the error code that stands beside it.
    private static let meanings: [RequestWord: (code: CertificateProviderError.Code, sentence: String)] = [
        .wrongOperationType: (
            .malformedRequest, "the URL cannot be read, or its host is neither sign-pdf nor sign-challenge"
        ),
        .emptyData: (.malformedRequest, "the document or challenge is missing"),
        .emptyService: (.malformedRequest, "service-name is missing"),
        .emptyClientID: (.malformedRequest, "client-id is missing"),
        .emptySignature: (.malformedRequest, "signature, the HMAC, is missing"),
        .emptyUserCode: (.malformedRequest, "user-code is missing"),
        .wrongLogoFormat: (.malformedRequest, "service-logo is not a PNG, JPEG, GIF or WebP image as data: URL"),
        .wrongLogoSize: (.malformedRequest, "service-logo has more than 512,000 bytes"),
        .documentProcessingError: (
            .documentNotSignable, "the document is not base64, too large, or not a PDF that can be signed"
        ),
        .challengeProcessingError: (
            .malformedData,
            "the challenge is not base64, has more than 4,096 bytes, or is something that TLS, CMS, X.509, PKCS#10 or SSH sign"
        ),
        .validateRequestError: (
            .rejected,
            "the client, its key, the operation or the scheme is not the signer's, or an item is there twice, or the data was signed before"
        ),
        .wrongUserCode: (.rejected, "user-code is not the person's"),
        .signDocumentError: (.unavailable, "the signer's identity cannot be used, or its key did not sign"),
        .signChallengeError: (
            .unavailable, "the signer's identity cannot be used, has no P-256 key, or its key did not sign"
        ),
        .operationCanceled: (.userCancelled, "the person has declined"),
        .approveRequestError: (
            .rejected, "the person could not be asked, did not answer in time, or too many requests wait"
        ),
        .timestampRequestError: (.unavailable, "the time-stamp server did not give a valid time stamp"),
        .internalError: (.internal, "the signer failed; see its log"),
        .emptyResponse: (.unavailable, "the signer gave no reply, or none in time"),
        .parseURLError: (.malformedData, "the reply is not a URL that can be read"),
        .certificateParseError: (.malformedData, "the certificate of the reply cannot be read"),
        .publicKeyCopyError: (.malformedData, "the certificate of the reply has no key that can be used"),
        .signatureVerificationError: (
            .keyMismatch,
            "the signature of the reply does not verify, its certificate does not lead to the anchors, or the document is another one"
        ),
    ]

    /// A clause that says what the word means; for an unknown word, that it is one.
    public var sentence: String { Self.meanings[self]?.sentence ?? "the signer refuses with a word of its own" }

    /// The error code beside the word; `rejected` for an unknown word.
    public var code: CertificateProviderError.Code { Self.meanings[self]?.code ?? .rejected }
}

extension CertificateProviderError.Code {
    /// The command's own code for a wrong command line: a request that is wrong by its form is the caller's mistake.
    fileprivate static let malformedRequest = Self(rawValue: "usage")
}
