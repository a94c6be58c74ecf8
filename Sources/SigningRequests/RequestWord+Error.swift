package import CertificateProviding

extension RequestWord {
    /// The error of a reply that refuses the request with this word.
    package func refusal() -> ProviderError { error("The signer refuses the request: \(sentence).") }

    /// The error of a request that each signer would refuse with this word.
    package func mistake(_ detail: String = "") -> ProviderError {
        error("Signers refuse the request: \(sentence)." + (detail.isEmpty ? "" : " \(detail)"))
    }

    /// The error of a reply that is not accepted, for which this word stands.
    ///
    /// - Parameter detail: Says more than the word's own sentence.
    package func failure(_ detail: String = "", underlying: (any Error)? = nil) -> ProviderError {
        let sentence = sentence.prefix(1).uppercased() + sentence.dropFirst()
        return error("\(sentence)." + (detail.isEmpty ? "" : " \(detail)"), underlying: underlying)
    }

    /// An error with the word in front of its message and as its reason.
    ///
    /// - Parameter code: Another code than the word's.
    package func error(
        _ text: String, code: ProviderError.Code? = nil, underlying: (any Error)? = nil
    ) -> ProviderError {
        ProviderError(
            code ?? self.code, "\(shown): \(text)", reason: .init(rawValue: shown), underlying: underlying)
    }

    /// A word of another signer is text from outside.
    private var shown: String {
        let text = rawValue.withVisibleControls
        return text.count <= 128 ? text : text.prefix(128) + "…"
    }
}
