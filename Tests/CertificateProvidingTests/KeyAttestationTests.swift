import CertificateProviding
import TestSupport
import Testing

@Suite struct KeyAttestationTests {
    private let data = [UInt8](0..<32)

    @Test("A statement about a key of each type passes", arguments: [KeyType.p256, .p384, .p521, .rsa2048])
    func aStatementPasses(type: KeyType) async throws {
        let key = try SoftwareKey.generate(type, location: .file).publicKey
        let attestation = try await InventedTPM().attester(of: key).attestation(of: data)
        #expect(!attestation.certInfo.isEmpty && !attestation.pubArea.isEmpty)
        try attestation.check(for: key, of: data)
    }

    @Test(
        "A statement that breaks a rule is refused with the rule",
        arguments: [
            (.certificateWithSubject, "has the subject 'CN=TPM attestation,O=certprov tests', and must have none"),
            (.namesNotCritical, "no critical subject alternative name"),
            (.noTPMNames, "manufacturer, model and version"),
            (.otherPurpose, "2.23.133.8.3"), (.authority, "is one of a CA"), (.otherData, "covers other data"),
            (.otherName, "names another key"), (.otherSignature, "does not verify"), (.notFixed, "could leave the TPM"),
            (.notCertify, "not the certification of a key"), (.damaged, "'certInfo' is damaged"),
            (.emptyChain, "has 0 certificates"), (.otherAlgorithm, "algorithm -8"),
        ] as [(InventedTPM.Flaw, String)])
    func rules(flaw: InventedTPM.Flaw, reason: String) async throws {
        let key = try SoftwareKey.generate(.p256, location: .file).publicKey
        let attestation = try await InventedTPM(flaw).attester(of: key).attestation(of: data)
        let error = failure { try attestation.check(for: key, of: data) }
        #expect(
            error?.code == .protocolError && error?.message.contains(reason) == true, "\(String(describing: error))")
    }

    @Test("A statement about another key is refused, and data of another length")
    func anotherKey() async throws {
        let key = try SoftwareKey.generate(.p256, location: .file).publicKey
        let attestation = try await InventedTPM(.otherKey).attester(of: key).attestation(of: data)
        #expect(failure { try attestation.check(for: key, of: data) }?.code == .keyMismatch)
        let attester = try InventedTPM().attester(of: key)
        #expect(await failure { _ = try await attester.attestation(of: [1]) }?.code == .malformedData)
    }

    @Test("Each cut of a TPM's structures is an error, and of another format only the bounds are checked")
    func cuts() async throws {
        let key = try SoftwareKey.generate(.p256, location: .file).publicKey
        let whole = try await InventedTPM().attester(of: key).attestation(of: data)
        for length in 1..<whole.pubArea.count {
            let cut = KeyAttestation(
                tpm: whole.certInfo, pubArea: Array(whole.pubArea.prefix(length)), algorithm: -7, chain: whole.chain,
                signature: whole.signature)
            #expect(failure { try cut.check(for: key, of: data) }?.code == .protocolError)
        }
        func other(_ name: String, _ field: [UInt8]) -> KeyAttestation {
            KeyAttestation(
                format: .init(rawValue: name), algorithm: -7, chain: whole.chain, signature: [1], fields: ["own": field]
            )
        }
        try other("vendor", [1]).check(for: key, of: data)
        for wrong in [
            other("", [1]), other("a b", [1]), other("vendor", []), other("vendor", Array(repeating: 0, count: 4097)),
        ] {
            #expect(failure { try wrong.check(for: key, of: data) }?.code == .protocolError)
        }
    }
}
