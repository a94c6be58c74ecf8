public import CertificateProviding

/// An error, on stderr or in a document's `errors`.
public struct ErrorDocument: Document {
    public static let kind = "Error"

    let code: String
    let provider: Nullable<String>
    let message: String

    public init(_ error: CertificateProviderError) {
        code = error.code.rawValue
        provider = Nullable(error.provider?.rawValue)
        message = error.message
    }
}
