import CP11Kit
import CertificateProviding
import TestSupport
import Testing

@testable import PKCS11TokenProvider

extension FaultTests {
    /// Two hundred: SoftHSM writes each into a file of its own.
    @Test func manyCertificatesAreListed() async throws {
        let leaf = try authority.issue("leaf").certificate
        let token = try Faults.token(tokens.module, InMemoryStorage(), timeout: .seconds(600), "many")
        try token.keys.write { _, session throws(CryptokiError) in
            for number in 0...200 as ClosedRange<CK_ULONG> {
                let certificate = number == 0 ? authority.intermediate : leaf
                _ = try session.create([
                    Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509)),
                    Attribute(CKA_TOKEN, true), Attribute(CKA_PRIVATE, false), Attribute(CKA_ID, number),
                    Attribute(CKA_SUBJECT, certificate.subjectDER), Attribute(CKA_VALUE, certificate.derRepresentation),
                ])
            }
        }
        // Without a login any of them may have a key; with it none has.
        let closed = await (try tokens.provider(.many, ["login": "never"])).listIdentities()
        #expect(closed.identities.count == 200 && closed.failures.isEmpty, "\(closed.failures)")
        #expect(closed.identities.allSatisfy { $0.certificateChain == [leaf, authority.intermediate] })
        let open = await (try tokens.provider(.many)).listIdentities()
        #expect(open.identities.isEmpty && open.otherObjects.count == 201, "\(open.failures)")
        #expect(open.remarks.count == 20, "\(open.remarks)")
    }
}
