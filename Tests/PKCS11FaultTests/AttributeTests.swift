import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct AttributeTests {
    /// The largest one is `CK_UNAVAILABLE_INFORMATION`.
    private static let lengths: [(CK_ULONG, CK_ULONG)] = [
        (8, .max - 1), (8, 4096), (8, 4), (8, 0), (0, 8), (1 << 40, 8), (.max - 1, 8), (8, .max), (.max, .max),
    ]

    /// A module reports a length, and then returns another one, or none.
    @Test(arguments: lengths) func aWrongLengthIsSurvived(asked: CK_ULONG, read: CK_ULONG) async throws {
        for type in [CKA_ID, CKA_LABEL, CKA_VALUE, CKA_SIGN, CKA_KEY_TYPE, CKA_ALWAYS_AUTHENTICATE] {
            let module = try FaultyModule.withIdentity()
            module.control.distort(type, asked, read)
            let provider = try module.provider()
            let list = await provider.listIdentities()
            #expect(list.identities.count <= 2)
            let outcome = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
            // Without a certificate in sight nothing says that the PIN is for this token.
            let expected: [ProviderError.Code?] = [
                nil, .unavailable, .notFound, .malformedData, .keyMismatch, .configurationInvalid,
            ]
            #expect(expected.contains(outcome), "\(type)")
            module.control.distort(.max, 0, 0)
            #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        }
    }
}
