/// A reply, and what the signer knows beside it.
package struct RequestReply: Sendable {
    /// The reply.
    package let location: RequestURL
    /// The same as text.
    package var url: String { location.text }
    /// `nil` for a signature.
    package let code: ResponseCode?
    /// Why the request was refused, for the log of this host.
    package let reason: String?
    /// Whether the URL handler may open the reply.
    package let isRegistered: Bool
}
