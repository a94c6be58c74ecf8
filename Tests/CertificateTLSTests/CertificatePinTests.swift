import CertificateProviding
import CertificateTLS
import Testing

@Suite struct CertificatePinTests {
    /// As RFC 7469 and as curl write them; one digest in 64 begins with a slash.
    @Test(arguments: ["+DAS", "/DAS", "//AS", "///S"]) func aDigestMayBeginWithASlash(start: String) throws {
        let base64 = start + String(repeating: "B", count: 39) + "="
        for prefix in ["sha256/", "sha256//"] { _ = try CertificatePin(publicKey: prefix + base64) }
        for text in [base64, "sha256/" + base64.dropLast(2), "sha1/" + base64] {
            let error = #expect(throws: ProviderError.self) { try CertificatePin(publicKey: text) }
            #expect(error?.code == .configurationInvalid, "\(text)")
        }
    }

    /// People take a pin for a PIN.
    @Test func aPINIsNotRepeated() throws {
        let error = #expect(throws: ProviderError.self) { try CertificatePin.read("739154") }
        #expect(error?.code == .configurationInvalid && error?.message.contains("739154") == false)
        let missing = #expect(throws: ProviderError.self) { try CertificatePin.read("/nowhere/pin.pem") }
        #expect(missing?.code == .fileNotFound && missing?.message.contains("/nowhere/pin.pem") == true)
    }
}
