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

    package struct Identity: Codable, Sendable {
        package let name: String
        package let file: String
        package var state = State.begins
        package var provider: String?
        package var subject: String?
        package var expires: Date?
        package var nextAttempt: Date?
        /// The last error of the identity, and that of its files, if they are not as they should be.
        package var errors: [Failure] = []

        init(name: String, file: String) { (self.name, self.file) = (name, file) }
    }

    package let process: Int32
    package let identities: [Identity]
}
