import CertificateProviding
import HostSockets

/// An identity as the sockets of the service give it to callers.
struct ServedIdentity: Sendable {
    /// The name of the identity: that of its property file.
    let name: String
    /// The current identity, and those that it has replaced while their keys still sign, the latest first.
    let identities: [Identity]
    let grants: Grants
    /// Whether a credential may hold the private key.
    var handsOutKey = false

    var current: Identity { identities[0] }
}
