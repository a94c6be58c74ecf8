package import CertificateProviding

/// An event between the host and a plugin, without secrets.
package struct PluginEvent: Sendable {
    /// The kind of an event.
    package enum Kind: Sendable {
        /// The plugin is started. The text is its path.
        case start
        /// The host sends a message.
        case sent
        /// The plugin sends a message.
        case received
        /// The plugin writes a line to standard error.
        case standardError
        /// The plugin has ended. The text says why.
        case end
    }

    /// The plugin.
    package let plugin: ProviderID
    /// The kind of the event.
    package let kind: Kind
    /// One line, without control characters.
    package let text: String
    /// When it happened.
    package let time = ContinuousClock.now

    init(_ plugin: ProviderID, _ kind: Kind, _ text: String) {
        (self.plugin, self.kind, self.text) = (plugin, kind, text)
    }
}

/// Gets events.
typealias PluginObserver = @Sendable (PluginEvent) -> Void
