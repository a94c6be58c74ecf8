package import CertificateProviding

/// Asks about a signing request by a pinentry.
package struct PinentryPrompt: ApprovalPrompt {
    private let pinentry: Pinentry

    package init(_ pinentry: Pinentry) { self.pinentry = pinentry }

    package var name: String { "pinentry" }

    /// Shows as much of the question as fits.
    ///
    /// - Throws: As ``Pinentry/confirm(_:_:within:)``.
    package func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(CertificateProviderError) -> ApprovalAnswer {
        try await pinentry.confirm(
            question.text(fitting: PinentryText.maximum, PinentryText.count), ("Approve", "Decline"), within: time)
    }
}
