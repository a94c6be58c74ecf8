package import CertificateProviding

/// An error as JSON, on stderr or in a document's `errors`.
package struct ErrorDocument: CommandDocument {
    package static let kind = "Error"

    private let code: String
    private let provider: Nullable<String>
    private let message: String
    /// The part that a caller may decide by beside the code, such as a word of a protocol; left out where there is none.
    private let reason: String?
    /// The number of a library or protocol; left out where there is none.
    private let nativeCode: Int?
    /// Seconds after which to try again; left out unless the server or the plugin has said so.
    private let retryAfter: Double?

    /// Makes the document of an error.
    package init(_ error: ProviderError) {
        code = error.code.rawValue
        provider = Nullable(error.provider?.rawValue)
        message = error.message
        (reason, nativeCode) = (error.reason?.rawValue, error.nativeCode)
        retryAfter = error.retryAfter.map { $0 / .seconds(1) }
    }
}
