import COpenSSLCurves
public import CertificateProviding

/// A PIN of 4 to 8 digits. `0012` and `12` are two PINs: the length of a key's PIN is fixed at its enrolment.
public struct PIN: Sendable, Equatable {
    /// The number of digits.
    public let length: Int
    private let digits: SecretBytes

    /// The permitted numbers of digits.
    public static let lengths = 4...8

    /// - Parameter name: What errors call it, such as `signing PIN of alice@example.com in file:/etc/pin`.
    /// - Throws: `malformedData` for anything but 4 to 8 digits.
    public init(_ digits: SecretBytes, named name: String = "PIN") throws(ProviderError) {
        let isValid =
            Self.lengths.contains(digits.count)
            && digits.withUnsafeBytes { $0.allSatisfy { (0x30...0x39).contains($0) } }
        guard isValid else {
            throw ProviderError(
                .malformedData, "The \(name) must have 4 to 8 digits, and nothing else. Nothing was sent.")
        }
        (self.digits, length) = (digits, digits.count)
    }

    /// The value, which is not reduced.
    func scalar() throws(ProviderError) -> SecretScalar {
        let scalar = try SecretScalar()
        try digits.withUnsafeBytes { digits throws(ProviderError) in
            for digit in digits {
                try OpenSSLFailure.check("BN_mul_word") { BN_mul_word(scalar.pointer, 10) }
                try OpenSSLFailure.check("BN_add_word") { BN_add_word(scalar.pointer, UInt(digit - 0x30)) }
            }
        }
        return scalar
    }
}
