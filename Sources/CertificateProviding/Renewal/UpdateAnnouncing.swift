/// The ability of a ``CertificateProvider`` to say by itself that there may be a new identity, such as after a revocation.
public protocol UpdateAnnouncing: Sendable {
    /// Returns a stream with an element each time that the provider is to be asked again, or its store to be read.
    ///
    /// Each call returns a stream of its own. Several announcements may become one. The stream ends when the provider is shut
    /// down. Returns at once.
    func announcements() -> AsyncStream<Void>

    /// Whether the identity comes from this host's files. It is then asked for within seconds of an announcement, also soon after
    /// a failure: no server has to be spared.
    var isLocal: Bool { get }

    /// Returns whether the source has another identity than the one that is stored, for a program that follows no announcements.
    /// Never uses the network and never prompts. Blocks for a small file at most.
    func hasUpdate() -> Bool
}

extension UpdateAnnouncing {
    /// False: the default for a provider that asks a server.
    public var isLocal: Bool { false }
    /// False: the default for a provider that cannot tell without asking its server.
    public func hasUpdate() -> Bool { false }
}
