import CertificateProviding
import TestSupport
import Testing

@Suite struct RejectedSecretsTests {
    private let storage = InMemoryStorage()
    private var rejected: RejectedSecrets { get throws(ProviderError) { try storage.rejectedSecrets() } }
    private let account = "device@mdm.example.com:443"

    @Test func aRejectedPasswordIsKnownAfterwards() throws {
        let secret = SecretBytes(utf8: "wrong")
        #expect(try !rejected.contains(secret, for: account))
        for _ in 0..<2 { try storage.updateRejectedSecrets { $0.insert(secret, for: account) } }
        #expect(try storage.afterCrash().rejectedSecrets().contains(secret, for: account))
        // Another password, user or server is another one.
        #expect(try !rejected.contains(SecretBytes(utf8: "wrong "), for: account))
        #expect(try !rejected.contains(secret, for: "device@mdm.example.com:4433"))
        try storage.updateRejectedSecrets { $0.remove(secret, for: account) }
        #expect(try !rejected.contains(secret, for: account))
    }

    @Test func theRecordDoesNotContainThePassword() throws {
        try storage.updateRejectedSecrets { $0.insert(SecretBytes(utf8: "wrong-password"), for: account) }
        let record = try #require(try storage.record(named: RejectedSecrets.recordName))
        record.withUnsafeBytes { bytes in
            #expect(!String(decoding: bytes, as: UTF8.self).contains("wrong"))
        }
    }

    @Test("The record keeps the last 32 rejected passwords")
    func theLastThirtyTwoAreKept() throws {
        for number in 0..<40 {
            try storage.updateRejectedSecrets { $0.insert(SecretBytes(utf8: "wrong-\(number)"), for: account) }
        }
        for number in 0..<40 {
            #expect(try rejected.contains(SecretBytes(utf8: "wrong-\(number)"), for: account) == (number >= 8))
        }
    }

    @Test(
        "An unreadable record of rejected passwords is an error and stays unchanged",
        arguments: ["", "{}", #"{"version":2,"key":"","hashes":[],"tries":[]}"#])
    func aRecordThatCannotBeReadSendsNothingAndStays(content: String) throws {
        let record = SecretBytes(utf8: content + " ")
        try storage.updateRecord(named: RejectedSecrets.recordName) { _ in record }
        let secret = SecretBytes(utf8: "wrong")
        for call in [
            { _ = try rejected }, { try storage.updateRejectedSecrets { $0.insert(secret, for: account) } },
            { try storage.updateRejectedSecrets { $0.remove(secret, for: account) } },
        ] {
            let error = #expect(throws: ProviderError.self) { try call() }
            #expect(error?.code == .storeReadFailed && error?.reason == nil)
            let step = content.contains("2") ? "update certprov" : "records/*/rejected-secrets"
            #expect(error?.message.contains(step) == true)
        }
        #expect(try storage.record(named: RejectedSecrets.recordName) == record)
    }
}
