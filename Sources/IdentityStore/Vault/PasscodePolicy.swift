package import CertificateProviding
import Glibc

/// The demands on a passcode of a ``DataVault``, and the consequences of wrong ones.
public struct PasscodePolicy: Equatable, Sendable {
    /// The least number of characters.
    package var minimumLength = 8
    /// Whether a digit (`0` to `9`) is needed.
    package var needsDigit = false
    /// Whether an upper-case letter (`A` to `Z`) is needed.
    package var needsUpperCase = false
    /// Whether a lower-case letter (`a` to `z`) is needed.
    package var needsLowerCase = false
    /// Whether a character is needed that is neither an ASCII letter nor a digit.
    package var needsSpecial = false
    /// The least number of different characters.
    package var minimumUniqueCharacters = 0
    /// The number of days for which a passcode is valid; 0 for always.
    package var validDays = 0
    /// How often a wrong passcode may be given in a row. The last one destroys the vault. 0 or less for any number.
    package var maximumAttempts = 10
    /// Whether a vault may be made without a passcode, so that it is never locked.
    package var allowsDefault = false

    /// The greatest size of a passcode in bytes.
    package static let maximumSize = 1024

    /// Creates the default policy: 8 characters, and 10 attempts.
    package init() {}

    /// Checks a new passcode.
    ///
    /// - Throws: `configurationInvalid`, which names every demand that it does not meet, and not the passcode.
    package func check(_ passcode: SecretBytes) throws(ProviderError) {
        guard passcode.count <= Self.maximumSize else {
            throw ProviderError(
                .configurationInvalid, "The new passcode has more than \(Self.maximumSize) bytes; use a shorter one.")
        }
        guard var characters = Self.characters(of: passcode) else {
            throw ProviderError(.configurationInvalid, "The new passcode is not UTF-8; use another one.")
        }
        defer { characters.wipe() }
        let isDigit = { (character: UInt32) in (0x30...0x39).contains(character) }
        let isUpper = { (character: UInt32) in (0x41...0x5a).contains(character) }
        let isLower = { (character: UInt32) in (0x61...0x7a).contains(character) }
        var missing: [String] = []
        // An empty passcode protects as much as none.
        let least = allowsDefault ? minimumLength : max(1, minimumLength)
        if characters.count < least { missing.append("\(least) character\(least == 1 ? "" : "s")") }
        if needsDigit && !characters.contains(where: isDigit) { missing.append("a digit") }
        if needsUpperCase && !characters.contains(where: isUpper) { missing.append("an upper-case letter") }
        if needsLowerCase && !characters.contains(where: isLower) { missing.append("a lower-case letter") }
        if needsSpecial && characters.allSatisfy({ isDigit($0) || isUpper($0) || isLower($0) }) {
            missing.append("a character that is neither an ASCII letter nor a digit")
        }
        let unique = characters.indices.count { !characters[..<$0].contains(characters[$0]) }
        if unique < minimumUniqueCharacters { missing.append("\(minimumUniqueCharacters) different characters") }
        guard !missing.isEmpty else { return }
        throw ProviderError(
            .configurationInvalid,
            "The new passcode is too weak; it must have at least \(missing.joined(separator: ", and ")).")
    }

    /// Returns the Unicode scalars without a `String`, which would keep copies; `nil` for bytes that are not UTF-8.
    private static func characters(of passcode: SecretBytes) -> [UInt32]? {
        passcode.withUnsafeBytes { bytes in
            var characters: [UInt32] = []
            characters.reserveCapacity(bytes.count)
            var (decoder, iterator) = (UTF8(), bytes.makeIterator())
            while true {
                switch decoder.decode(&iterator) {
                case .scalarValue(let scalar): characters.append(scalar.value)
                case .emptyInput: return characters
                case .error:
                    characters.wipe()
                    return nil
                }
            }
        }
    }
}

extension [UInt32] {
    fileprivate mutating func wipe() {
        withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, $0.count) } }
    }
}
