import CertificateProviding
import IdentityStore

/// One operation of the registration: what its steps have found so far.
struct RegistrationRun: Sendable {
    let interaction: any UserInteraction
    var identity: Identity?
    var record: ConnectionRecord?
    var passcode: SecretBytes?
    var newPasscode: SecretBytes?
    /// Whether no user has just typed ``passcode``.
    var isAutomatic = false
    var username: String?
    var password: SecretBytes?
    /// Whether ``password`` is from a source, and no user has just typed it.
    var isPasswordAutomatic = false
    var activationCode: SecretBytes?
    /// The server's demands on passcodes.
    var demands: PasscodeDemands?
    /// Why the record of the connection cannot be read.
    var damage: ProviderError?
    /// The failures beside the operation itself.
    var remarks: [String] = []
    /// Whether this run has created the vault.
    var isRegistered = false

    init(_ interaction: any UserInteraction) { self.interaction = interaction }
}
