import CertificateProviding

/// An error, on stderr or in a document's `errors`.
struct ErrorDocument: Document {
    /// The document's `kind`.
    static let kind = "Error"

    let code: String
    let provider: Nullable<String>
    let message: String
    /// The part that a caller may decide by beside the code, such as a word of a protocol; left out where there is none.
    let reason: String?
    /// Seconds after which to try again; left out unless the server or the plugin has said so.
    let retryAfter: Double?

    /// Makes the document of an error.
    init(_ error: CertificateProviderError) {
        code = error.code.rawValue
        provider = Nullable(error.provider?.rawValue)
        message = error.message
        reason = error.reason?.rawValue
        retryAfter = error.retryAfter.map { $0 / .seconds(1) }
    }
}
