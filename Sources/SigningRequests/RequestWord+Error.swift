package import CertificateProviding

extension RequestWord {
    /// The error of a caller, with the word in front of its message and as its reason.
    ///
    /// - Parameters:
    ///   - detail: A sentence that says more.
    ///   - code: Another code than the word's.
    package func error(
        _ detail: String? = nil, code: CertificateProviderError.Code? = nil, underlying: (any Error)? = nil
    ) -> CertificateProviderError {
        let text = sentence
        return CertificateProviderError(
            code ?? self.code,
            "\(shown): \(text.prefix(1).uppercased() + text.dropFirst())." + (detail.map { " \($0)" } ?? ""),
            reason: .init(rawValue: shown), underlying: underlying)
    }

    /// A word of another signer is text from outside.
    private var shown: String {
        let text = rawValue.withVisibleControls
        return text.count <= 128 ? text : text.prefix(128) + "…"
    }
}
