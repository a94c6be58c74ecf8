import FoundationEssentials
package import Logging

/// A line of the log for those who audit: one thing that has happened to an identity. The page Events has the fields.
package enum IdentityEvent: String, Sendable, CaseIterable {
    case issued, renewed, refused, deleted, revoked, recovered, served
    case filesWritten = "files-written"

    private var message: Logger.Message {
        switch self {
        case .issued: "identity issued"
        case .renewed: "identity renewed"
        case .refused: "identity refused"
        case .deleted: "identity deleted"
        case .revoked: "certificate revoked"
        case .recovered: "identity recovered after failures"
        case .served: "identity served"
        case .filesWritten: "files of the identity written"
        }
    }

    /// Writes the event to a log, at the level `notice`: an error has a line of its own, for those who operate.
    ///
    /// - Parameters:
    ///   - identity: `nil` where there is none, or it cannot be read.
    ///   - provider: That of the identity, where there is none.
    ///   - error: Why it has failed; `nil` for a success. Its message is not part of the event, only its code.
    ///   - fields: Further ones, such as the process of `served`. Never a secret.
    package func write(
        to logger: Logger, _ identity: Identity?, of provider: ProviderID? = nil,
        failedWith error: ProviderError? = nil,
        _ fields: [String: String] = [:]
    ) {
        var all = fields
        all["event"] = rawValue
        all["outcome"] = error?.code.rawValue ?? "ok"
        all["provider"] = (identity?.provenance.provider ?? provider ?? error?.provider)?.rawValue
        all["server"] = identity?.provenance.source
        if let certificate = identity?.certificate {
            all["subject"] = certificate.subject
            all["serial"] = certificate.serialNumberText
            all["fingerprint"] = DisplayText.hexadecimal(certificate.sha256Fingerprint)
            all["expires"] = identity?.expiry.formatted(.iso8601)
        }
        logger.notice(message, metadata: all.mapValues { .string($0.withVisibleControls) })
    }
}
