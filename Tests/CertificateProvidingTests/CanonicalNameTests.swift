import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

@Suite struct CanonicalNameTests {
    private typealias Attribute = RelativeDistinguishedName.Attribute

    private static func name(_ values: Attribute.Value...) -> DistinguishedName {
        DistinguishedName(
            values.map { RelativeDistinguishedName(Attribute(type: .RDNAttributeType.commonName, value: $0)) })
    }

    /// A CA under two forms of its name.
    private struct Forms {
        let own: TestParty
        let inWhatItIssues: TestParty

        init(_ name: String, _ other: Attribute.Value) throws {
            let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
            own = TestParty(named: CanonicalNameTests.name(try .init(printableString: name)), key: key)
            inWhatItIssues = TestParty(named: CanonicalNameTests.name(other), key: key)
        }
    }

    @Test(
        "A chain holds whose CAs write their names in another string type, case or number of blanks",
        arguments: [("Root E", "Int E"), (" ROOT  e", "int e  ")])
    func formsOfOneName(root: String, issuing: String) async throws {
        let roots = try Forms("Root E", .init(utf8String: root))
        // A BMPString.
        let bytes = issuing.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 255)] }
        let encoded = try ASN1Any(derEncoded: X509Certificate.element(0x1e, bytes))
        let issuings = try Forms("Int E", .init(asn1Any: encoded))
        let chain = [
            try issuings.inWhatItIssues.certify(TestParty("leaf"), isAuthority: false),
            try roots.inWhatItIssues.certify(issuings.own), try roots.own.certify(),
        ]
        #expect(chain[0].issuerDER != chain[1].subjectDER && chain[1].issuerDER != chain[2].subjectDER)
        #expect(CertificateChain.build(from: chain[0], among: chain.reversed()) == chain)
        let path = try await CertificateChain.validated(
            from: chain[0], among: [chain[1]], trusting: [chain[2]], at: Date())
        #expect(path == chain)
    }

    @Test("A self-issued certificate may have two forms of its name")
    func selfIssued() throws {
        let root = try Forms("Root E", .init(utf8String: "root e"))
        #expect(try root.inWhatItIssues.certify(root.own).isSelfIssued)
        #expect(try !root.own.certify(TestParty("Root E")).isSelfIssued)
    }

    @Test(
        "Other names are not the same",
        arguments: [["RootE"], ["Root", "E"], ["Root \u{cb}"], ["Root \u{415}"], ["Root E", ""], []])
    func otherNames(values: [String]) throws {
        let name = DistinguishedName(
            values.map {
                RelativeDistinguishedName(Attribute(type: .RDNAttributeType.commonName, value: .init(utf8String: $0)))
            })
        let root = try Forms("Root E", .init(utf8String: "Root E"))
        let other = TestParty(named: name, key: root.own.key)
        #expect(try !root.own.certify(other).isSelfIssued)
        #expect(
            try CertificateChain.build(from: root.own.certify(TestParty("leaf")), among: [other.certify()]).count == 1)
    }
}
