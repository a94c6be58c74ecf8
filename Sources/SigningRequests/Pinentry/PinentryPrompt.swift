package import CertificateProviding

/// Asks about a signing request by a pinentry.
package struct PinentryPrompt: ApprovalPrompt {
    private let pinentry: Pinentry

    package init(_ pinentry: Pinentry) { self.pinentry = pinentry }

    package var name: String { "pinentry" }

    /// Shows as much of the question as fits.
    ///
    /// - Throws: As ``Pinentry/confirm(_:_:within:opening:)``.
    package func answer(
        to question: SigningQuestion, within time: Duration
    ) async throws(ProviderError) -> ApprovalAnswer {
        var opening: (@Sendable () async -> String?)?
        if let path = question.documentPath { opening = { await Self.problem(opening: path) } }
        return try await pinentry.confirm(
            question.text(fitting: PinentryText.maximum, rows: PinentryText.maximumRows, PinentryText.count),
            .init(approve: "Approve", decline: "Decline", typed: "sign"), within: time, opening: opening)
    }

    /// Opens a document, and returns why it cannot be opened.
    private static func problem(opening path: String) async -> String? {
        do throws(ProviderError) {
            try await ReplyOpener.show(path)
            return nil
        } catch { return error.message }
    }
}
