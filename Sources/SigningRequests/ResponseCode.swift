package import CertificateProviding

/// The `message` of a reply that refuses a request, and what a caller makes of a reply that is not accepted. Of the
/// protocol, not of this project; open, since a signer may have others.
package struct ResponseCode: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    package let rawValue: String
    package init(rawValue: String) { self.rawValue = rawValue }
    package var description: String { rawValue }

    // Of a signer
    /// The request is not a URL whose host is an operation. Of a caller: the reply's host is not the request's.
    package static let wrongOperationType = Self(rawValue: "wrong-operation-type")
    /// The document or challenge is missing or empty.
    package static let emptyData = Self(rawValue: "empty-data")
    /// The document is not base64, is too large, or is not a PDF that can be signed.
    package static let documentProcessingError = Self(rawValue: "document-processing-error")
    /// The challenge is not base64, has more than 4,096 bytes, or would be signed content in another protocol.
    package static let challengeProcessingError = Self(rawValue: "challenge-processing-error")
    /// `service-name` is missing or blank.
    package static let emptyService = Self(rawValue: "empty-service")
    /// `client-id` is missing or blank.
    package static let emptyClientID = Self(rawValue: "empty-client-id")
    /// `signature`, the HMAC, is missing or blank.
    package static let emptySignature = Self(rawValue: "empty-signature")
    /// `user-code` of a document is missing or blank.
    package static let emptyUserCode = Self(rawValue: "empty-user-code")
    /// `service-logo` is not a PNG, JPEG, GIF or WebP image as `data:` URL.
    package static let wrongLogoFormat = Self(rawValue: "wrong-logo-format")
    /// `service-logo` has more than 512,000 bytes.
    package static let wrongLogoSize = Self(rawValue: "wrong-logo-size")
    /// The client, its HMAC, the operation or the scheme is not in the registry, an item is there twice, or no person would approve a repetition.
    package static let validateRequestError = Self(rawValue: "validate-request-error")
    /// `user-code` is not the person's.
    package static let wrongUserCode = Self(rawValue: "wrong-user-code")
    /// The identity cannot sign the document.
    package static let signDocumentError = Self(rawValue: "sign-document-error")
    /// The identity cannot sign the challenge.
    package static let signChallengeError = Self(rawValue: "sign-challenge-error")
    /// The person has declined.
    package static let operationCanceled = Self(rawValue: "operation-canceled")
    /// The person could not be asked, has not answered in time, or too many requests wait.
    package static let approveRequestError = Self(rawValue: "approve-request-error")
    /// The time stamp did not come, or is wrong.
    package static let timestampRequestError = Self(rawValue: "timestamp-request-error")
    /// Anything else, such as a journal that cannot be written.
    package static let internalError = Self(rawValue: "internal-error")

    // Of a caller
    /// There was no reply, or none in time.
    package static let emptyResponse = Self(rawValue: "empty-response")
    /// The reply is not a URL.
    package static let parseURLError = Self(rawValue: "parse-url-error")
    /// The certificate of the reply cannot be read.
    package static let certificateParseError = Self(rawValue: "certificate-parse-error")
    /// The certificate of the reply has no key that can be used.
    package static let publicKeyCopyError = Self(rawValue: "public-key-copy-error")
    /// The signature does not verify, its certificate does not lead to the anchors, or the document does not begin with the one that was sent.
    package static let signatureVerificationError = Self(rawValue: "signature-verification-error")
}

extension ResponseCode {
    /// Each code as a clause, and the error code that goes with it.
    private static let meanings: [ResponseCode: (code: ProviderError.Code, sentence: String)] = [
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

    /// A clause that says what the code means; for an unknown one, that it is unknown.
    package var sentence: String { Self.meanings[self]?.sentence ?? "the signer refuses with a code of its own" }

    /// The error code that goes with it; `rejected` for an unknown one.
    package var errorCode: ProviderError.Code { Self.meanings[self]?.code ?? .rejected }

    /// The error of a reply that refuses the request with this code.
    package func refusal() -> ProviderError { error("The signer refuses the request: \(sentence).") }

    /// The error of a request that each signer would refuse with this code.
    package func mistake(_ detail: String = "") -> ProviderError {
        error("Signers refuse the request: \(sentence)." + (detail.isEmpty ? "" : " \(detail)"))
    }

    /// The error of a reply that is not accepted, for which this code stands.
    ///
    /// - Parameter detail: Says more than the code's own sentence.
    package func failure(_ detail: String = "", underlying: (any Error)? = nil) -> ProviderError {
        let sentence = sentence.prefix(1).uppercased() + sentence.dropFirst()
        return error("\(sentence)." + (detail.isEmpty ? "" : " \(detail)"), underlying: underlying)
    }

    /// An error with the code in front of its message and as its reason.
    ///
    /// - Parameter code: Instead of ``errorCode``.
    package func error(
        _ text: String, code: ProviderError.Code? = nil, underlying: (any Error)? = nil
    ) -> ProviderError {
        ProviderError(
            code ?? errorCode, "\(shown): \(text)", reason: .init(rawValue: shown), underlying: underlying)
    }

    /// A code of another signer is text from outside.
    private var shown: String {
        let text = rawValue.withVisibleControls
        return text.count <= 128 ? text : text.prefix(128) + "…"
    }
}

extension ProviderError.Code {
    /// The command's own code for a wrong command line: a request that is wrong by its form is the caller's mistake.
    fileprivate static let malformedRequest = Self(rawValue: "usage")
}
