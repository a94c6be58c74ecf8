import CertificateProviding
import IdentityStore
import Testing

@Suite struct PasscodePolicyTests {
    struct Row: Sendable, CustomTestStringConvertible {
        let passcode: String
        let change: @Sendable (inout PasscodePolicy) -> Void
        /// In the message; `nil` if the passcode is accepted.
        let missing: String?
        var testDescription: String { "\(passcode): \(missing ?? "accepted")" }

        init(
            _ passcode: String, _ missing: String?,
            _ change: @escaping @Sendable (inout PasscodePolicy) -> Void = { _ in }
        ) {
            (self.passcode, self.missing, self.change) = (passcode, missing, change)
        }
    }

    static let rows = [
        Row("seven77", "8 characters"), Row("eight888", nil), Row("", "8 characters"),
        // Characters, not bytes.
        Row("öäüßöäü", "8 characters"), Row("öäüßöäüß", nil),
        Row("abcdefgh", "a digit") { $0.needsDigit = true }, Row("abcdefg1", nil) { $0.needsDigit = true },
        Row("abcdefg1", "an upper-case letter") { $0.needsUpperCase = true },
        Row("abcdefgH", nil) { $0.needsUpperCase = true },
        Row("ABCDEFG1", "a lower-case letter") { $0.needsLowerCase = true },
        Row("ABCDEFGh", nil) { $0.needsLowerCase = true },
        Row("abcDEF12", "neither an ASCII letter nor a digit") { $0.needsSpecial = true },
        Row("abcDEF1ö", nil) { $0.needsSpecial = true }, Row("abcDEF1 ", nil) { $0.needsSpecial = true },
        Row("abababab", "3 different characters") { $0.minimumUniqueCharacters = 3 },
        Row("abababac", nil) { $0.minimumUniqueCharacters = 3 }, Row("", "1 character.") { $0.minimumLength = 0 },
        Row("", nil) { ($0.minimumLength, $0.allowsDefault) = (0, true) },
        Row("", "8 characters") { $0.allowsDefault = true },
        Row("short", "12 characters, and a digit") { ($0.minimumLength, $0.needsDigit) = (12, true) },
        Row(String(repeating: "x", count: 1024), nil), Row(String(repeating: "x", count: 1025), "more than 1024 bytes"),
    ]

    @Test(arguments: rows) func theRowHolds(row: Row) {
        var policy = PasscodePolicy()
        row.change(&policy)
        do throws(ProviderError) {
            try policy.check(SecretBytes(utf8: row.passcode))
            #expect(row.missing == nil)
        } catch {
            #expect(error.code == .configurationInvalid && row.missing.map(error.message.contains) == true, "\(error)")
            #expect(row.passcode.count < 5 || !error.message.contains(row.passcode))
        }
    }

    @Test func bytesThatAreNotTextAreRefused() {
        #expect(throws: ProviderError.self) {
            try PasscodePolicy().check(SecretBytes(copying: [UInt8](repeating: 0xff, count: 12)))
        }
    }
}
