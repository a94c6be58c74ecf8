package import CertificateProviding
package import FoundationEssentials

/// The state of the service, as its status socket has it.
package struct HostStatus: Codable, Sendable {
    package enum State: String, Codable, Sendable {
        /// The first attempt is in progress.
        case begins
        /// The identity could not be had, and is tried again.
        case waits
        case ready
        case ended
    }

    package struct Failure: Codable, Sendable {
        package let code: String
        package let message: String
        package let provider: String?

        init(_ error: ProviderError) {
            (code, message) = (error.code.rawValue, error.message)
            provider = error.provider?.rawValue
        }

        /// The error as it was in the service.
        package var error: ProviderError {
            ProviderError(
                .init(rawValue: code), message, provider: provider.flatMap { ProviderID(rawValue: $0) })
        }
    }

    package struct Tunnel: Codable, Sendable {
        package let mode: String
        package let listen: String
        package let target: String
        /// The number of connections that are open.
        package let connections: Int
    }

    /// A socket for other programs.
    package struct Socket: Codable, Sendable {
        package let name: String
        /// The number of connections that are open.
        package let connections: Int
    }

    package struct Identity: Codable, Sendable {
        package let name: String
        package let file: String
        package var state = State.begins
        package var provider: String?
        package var subject: String?
        package var expires: Date?
        package var nextAttempt: Date?
        package var tunnels: [Tunnel] = []
        /// The last error of the identity, and those of its files and its tunnels, if these are not as they should be.
        package var errors: [Failure] = []

        init(name: String, file: String) { (self.name, self.file) = (name, file) }
    }

    /// Which identities a process may use, and why not the others.
    package struct Explanation: Codable, Sendable {
        package struct Grant: Codable, Sendable {
            /// The setting, such as `Serve.allow.1`, and its value.
            package let name: String
            package let text: String
            /// The selectors that do not match, as clauses; none for a grant that the process has.
            package let mismatches: [String]
            /// Why it gives the unit of the process no systemd credential; none if it does. `nil` without a credential socket.
            package let credentials: [String]?
        }

        package struct Identity: Codable, Sendable {
            package let name: String
            package let grants: [Grant]
            package var isGranted: Bool { grants.contains { $0.mismatches.isEmpty } }
        }

        /// The process, its user, groups and unit.
        package let caller: String
        package let identities: [Identity]
    }

    package let process: Int32
    package let identities: [Identity]
    package let sockets: [Socket]
    /// Of the service, such as of its own file.
    package let errors: [Failure]
}
