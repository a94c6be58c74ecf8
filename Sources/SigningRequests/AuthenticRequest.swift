/// A request whose client has been authenticated: what passed the steps 1 to 11.
package struct AuthenticRequest: Sendable {
    package let operation: SigningOperation
    package let client: RequestRegistry.Client
    package let data: [UInt8]
    /// The SHA-256 of the data, in hexadecimal digits.
    package let digest: String
    package let logo: RequestLogo
    package let serviceName: String
    package let documentName: String?
    package let requestID: String?
    package let userCode: String?

    /// Whether a rule approves it instead of a person.
    package var isUnattended: Bool { client.unattended.contains(operation) }
}
