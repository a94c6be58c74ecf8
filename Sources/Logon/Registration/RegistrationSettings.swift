package import CertificateProviding
public import IdentityStore

/// The settings of a registration, beside those of the server in ``LogonConfiguration``.
public struct RegistrationSettings: Sendable, Equatable {
    /// The key `ApplicationId`: letters, digits, `.`, `-` and `_`; `nil` for a host that registers no application.
    public var applicationID: String?
    /// The key `Registration.username`, for the policies `automatic` and `manual`; `nil` to ask the user.
    package var username: String?
    /// The key `Registration.password-source`; `nil` to ask the user.
    package var passwordSource: SecretSource?
    /// The key `Registration.activation-code-source`; `nil` for a user who exists already.
    package var activationCodeSource: SecretSource?
    /// The key `Registration.pin`: pins of the server, as `CertificatePin` reads them.
    package var pins: [String]
    /// The key `Registration.pin-mode`: whether a pin alone authenticates the server, without a trust anchor.
    package var isPinOnly: Bool
    /// The key `Vault.key`: the URI of a key store that makes a key, without which the passcode does not open the vault; `nil` for
    /// none.
    package var vaultKey: String?
    /// The key `Vault.key-pin-source`; `nil` to ask the user.
    package var vaultKeyPINSource: SecretSource?
    /// The key `Passcode.source`; `nil` to ask the user.
    package var passcodeSource: SecretSource?
    /// The keys `Passcode.…` about what a passcode must be, and what wrong ones do.
    public var passcodePolicy: PasscodePolicy
    /// The key `Passcode.lock-timeout`: how long an unlocked vault may be unused before it is locked; `nil` for ever.
    package var lockTimeout: Duration?

    /// Creates the default settings, without an application.
    package init() {
        pins = []
        isPinOnly = false
        passcodePolicy = PasscodePolicy()
        lockTimeout = .seconds(300)
    }
}
