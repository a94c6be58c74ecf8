/// The ability of a ``CertificateProvider`` to say by itself that there may be a new identity, such as after a revocation.
public protocol UpdateAnnouncing: Sendable {
    /// Returns a stream with an element each time that the provider is to be asked again, or its store to be read.
    ///
    /// Each call returns a stream of its own. Several announcements may become one. The stream ends when the provider is shut
    /// down. Returns at once.
    func announcements() -> AsyncStream<Void>
}
