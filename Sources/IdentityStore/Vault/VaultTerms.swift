package import CertificateProviding
import Crypto
package import FoundationEssentials

/// The public part of a vault, beside its key: readable without the passcode, and authenticated with it.
package struct VaultTerms: Codable, Sendable {
    /// The platform server's demands, beside the configuration; `nil` for none.
    package var demands: PasscodeDemands?
    /// The key store's key that wraps the vault's key, beside the passcode; `nil` for none.
    package var wrapping: VaultKeyWrapping?

    package init(demands: PasscodeDemands? = nil, wrapping: VaultKeyWrapping? = nil) {
        (self.demands, self.wrapping) = (demands, wrapping)
    }
}

/// A key in a key store that has encrypted a random secret, without which the passcode does not open the vault.
package struct VaultKeyWrapping: Codable, Sendable {
    package var key: KeyReference
    /// The name of the decryption scheme.
    package var scheme: String
    package var ciphertext: Data
    /// SHA-256 of the secret, so that a key that decrypts to something else is not taken for a wrong passcode.
    var digest: Data

    package init(_ secret: SecretBytes, key: KeyReference, scheme: String, ciphertext: [UInt8]) {
        (self.key, self.scheme, self.ciphertext) = (key, scheme, Data(ciphertext))
        digest = Self.digest(secret)
    }

    func fits(_ secret: SecretBytes) -> Bool { Self.digest(secret) == digest }

    private static func digest(_ secret: SecretBytes) -> Data { Data(secret.withUnsafeBytes { SHA256.hash(data: $0) }) }
}

/// A platform server's demands on passcodes. `nil` for each that it does not mention.
package struct PasscodeDemands: Codable, Equatable, Sendable {
    package var minimumLength: Int?
    package var needsDigit: Bool?
    package var needsUpperCase: Bool?
    package var needsLowerCase: Bool?
    package var needsSpecial: Bool?
    package var minimumUniqueCharacters: Int?
    /// 0 for always.
    package var validDays: Int?
    /// 0 for any number.
    package var maximumAttempts: Int?
    package var allowsDefault: Bool?
    /// How long an unlocked vault may be unused before it is locked; 0 for ever.
    package var lockSeconds: Int?

    package init() {}
}

extension PasscodePolicy {
    /// Returns the stricter of both for each demand.
    func tightened(by demands: PasscodeDemands?) -> PasscodePolicy {
        guard let demands else { return self }
        var policy = self
        policy.minimumLength = max(minimumLength, demands.minimumLength ?? 0)
        policy.needsDigit = needsDigit || demands.needsDigit == true
        policy.needsUpperCase = needsUpperCase || demands.needsUpperCase == true
        policy.needsLowerCase = needsLowerCase || demands.needsLowerCase == true
        policy.needsSpecial = needsSpecial || demands.needsSpecial == true
        policy.minimumUniqueCharacters = max(minimumUniqueCharacters, demands.minimumUniqueCharacters ?? 0)
        policy.validDays = Self.least(validDays, demands.validDays)
        policy.maximumAttempts = Self.least(maximumAttempts, demands.maximumAttempts)
        policy.allowsDefault = allowsDefault && demands.allowsDefault != false
        return policy
    }

    /// Returns the smaller limit; 0 or less means none.
    private static func least(_ own: Int, _ other: Int?) -> Int {
        guard let other, other > 0 else { return own }
        return own > 0 ? min(own, other) : other
    }
}
