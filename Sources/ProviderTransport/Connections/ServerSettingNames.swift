/// The settings that the messages of errors tell the user to change. By default the parameters of providers, as
/// ``ServerParameter`` has them.
public struct ServerSettingNames: Sendable, Hashable {
    /// The settings with the address of the server: what follows "check".
    package var address: String
    /// The settings with the path on the server: what follows "check".
    package var path: String
    /// The settings with the trust anchors: what follows "check".
    package var trustAnchors: String
    /// The setting with the time that the server has: what follows "increase"; `nil` if the user cannot change it.
    package var timeout: String?

    /// Creates the names.
    public init(
        address: String = "'url'", path: String = "'url' and its label", trustAnchors: String = "'trust-anchors'",
        timeout: String? = "'timeout'"
    ) {
        (self.address, self.path, self.trustAnchors, self.timeout) = (address, path, trustAnchors, timeout)
    }

    /// The next step after a server was too slow: the end of a sentence.
    var adviceForSlowness: String {
        "check whether it is overloaded, or \(timeout.map { "increase \($0)" } ?? "try again later")"
    }
}
