public import CertificateProviding
public import IdentityStore
import ProviderTransport

/// The settings of a registration, beside those of the server in ``LogonConfiguration``.
public struct RegistrationSettings: Sendable, Equatable {
    /// The key `ApplicationId`: letters, digits, `.`, `-` and `_`; `nil` for a host that registers no application.
    public var applicationID: String?
    /// The key `Registration.username`, for the policies `automatic` and `manual`; `nil` to ask the user.
    public var username: String?
    /// The key `Registration.password-source`; `nil` to ask the user.
    public var passwordSource: SecretSource?
    /// The key `Registration.activation-code-source`; `nil` for a user who exists already.
    public var activationCodeSource: SecretSource?
    /// The key `Registration.pin`: pins of the server, as `CertificatePin` reads them.
    public var pins: [String]
    /// The key `Registration.pin-mode`: whether a pin alone authenticates the server, without a trust anchor.
    public var isPinOnly: Bool
    /// The key `Vault.key`: the URI of a key store that makes a key, without which the passcode does not open the vault; `nil` for
    /// none.
    public var vaultKey: String?
    /// The key `Vault.key-pin-source`; `nil` to ask the user.
    public var vaultKeyPINSource: SecretSource?
    /// The key `Passcode.source`; `nil` to ask the user.
    public var passcodeSource: SecretSource?
    /// The keys `Passcode.…` about what a passcode must be, and what wrong ones do.
    public var passcodePolicy: PasscodePolicy
    /// The key `Passcode.lock-timeout`: how long an unlocked vault may be unused before it is locked; `nil` for ever.
    public var lockTimeout: Duration?

    /// Creates the default settings, without an application.
    public init() {
        pins = []
        isPinOnly = false
        passcodePolicy = PasscodePolicy()
        lockTimeout = .seconds(300)
    }
}

extension RegistrationSettings {
    /// The keys of the property file.
    enum Key: String, CaseIterable {
        case applicationID = "ApplicationId"
        case username = "Registration.username"
        case passwordSource = "Registration.password-source"
        case activationCodeSource = "Registration.activation-code-source"
        case pin = "Registration.pin"
        case pinMode = "Registration.pin-mode"
        case vaultKey = "Vault.key"
        case vaultKeyPINSource = "Vault.key-pin-source"
        case passcodeSource = "Passcode.source"
        case minimumLength = "Passcode.min-length"
        case digits = "Passcode.digits"
        case upper = "Passcode.upper"
        case lower = "Passcode.lower"
        case special = "Passcode.special"
        case unique = "Passcode.unique"
        case validDays = "Passcode.expires-days"
        case maximumAttempts = "Passcode.max-attempts"
        case lockTimeout = "Passcode.lock-timeout"
        case defaultAllowed = "Passcode.default-allowed"

        /// The condition for a value: the end of a sentence.
        var expectation: String {
            switch self {
            case .applicationID:
                "must have 1 to 128 letters, digits, '.', '-' and '_', and not begin with '.'"
            case .username: "must not be blank, and have no colon or control character (RFC 7617)"
            case .vaultKey: "must be the URI of a key store, such as pkcs11:token=NAME"
            case .passwordSource, .activationCodeSource, .passcodeSource, .vaultKeyPINSource:
                "must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt"
            case .pin: "must be pins, separated by commas, and none of them blank"
            case .pinMode: "must be pin-and-pki or pin-only"
            case .digits, .upper, .lower, .special, .defaultAllowed: "must be true or false"
            case .minimumLength, .unique: "must be a number from 0 to 1024"
            case .validDays: "must be a number of days from 0 to 36500"
            case .maximumAttempts: "must be a number from 0 to 1000000"
            case .lockTimeout: "must be a number of seconds from 0 to 86400"
            }
        }
    }

    /// Takes the value of a key. Returns whether it is valid.
    mutating func take(_ text: String, for key: Key) -> Bool {
        switch key {
        case .applicationID:
            applicationID = text
            return DataVault.isValid(text)
        case .username:
            username = text
            return !text.isEmpty && text.isUserName
        case .passwordSource: return take(text, \.passwordSource)
        case .activationCodeSource: return take(text, \.activationCodeSource)
        case .vaultKey:
            vaultKey = text
            return KeyStoreLocation(uri: text, pinSource: nil) != nil
        case .vaultKeyPINSource: return take(text, \.vaultKeyPINSource)
        case .passcodeSource: return take(text, \.passcodeSource)
        case .pin:
            pins = text.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
            return !pins.contains("")
        case .pinMode:
            isPinOnly = text == "pin-only"
            return ["pin-only", "pin-and-pki"].contains(text)
        case .minimumLength: return take(text, \.passcodePolicy.minimumLength, 0...1024)
        case .unique: return take(text, \.passcodePolicy.minimumUniqueCharacters, 0...1024)
        case .validDays: return take(text, \.passcodePolicy.validDays, 0...36500)
        case .maximumAttempts: return take(text, \.passcodePolicy.maximumAttempts, 0...1_000_000)
        case .lockTimeout:
            var seconds = 0
            guard Self.read(text, 0...86400, &seconds) else { return false }
            lockTimeout = seconds == 0 ? nil : .seconds(seconds)
            return true
        case .digits: return take(text, \.passcodePolicy.needsDigit)
        case .upper: return take(text, \.passcodePolicy.needsUpperCase)
        case .lower: return take(text, \.passcodePolicy.needsLowerCase)
        case .special: return take(text, \.passcodePolicy.needsSpecial)
        case .defaultAllowed: return take(text, \.passcodePolicy.allowsDefault)
        }
    }

    private mutating func take(_ text: String, _ place: WritableKeyPath<Self, SecretSource?>) -> Bool {
        self[keyPath: place] = SecretSource(text)
        return self[keyPath: place] != nil
    }

    private mutating func take(_ text: String, _ place: WritableKeyPath<Self, Bool>) -> Bool {
        guard let value = Bool(propertyText: text) else { return false }
        self[keyPath: place] = value
        return true
    }

    private mutating func take(
        _ text: String, _ place: WritableKeyPath<Self, Int>, _ range: ClosedRange<Int>
    ) -> Bool { Self.read(text, range, &self[keyPath: place]) }

    private static func read(_ text: String, _ range: ClosedRange<Int>, _ value: inout Int) -> Bool {
        // Int(_:) by itself would take a sign.
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int(text), range.contains(number)
        else {
            return false
        }
        value = number
        return true
    }
}
