/// The address of a reply: the scheme and the host of its URL.
package struct ReplyAddress: Sendable, Equatable {
    package let scheme: String
    package let host: String
    /// Whether the registry has the scheme for the client that the request names: the URL handler opens no other one.
    package let isRegistered: Bool

    package init(scheme: String, host: String, isRegistered: Bool) {
        (self.scheme, self.host, self.isRegistered) = (scheme, host, isRegistered)
    }
}
