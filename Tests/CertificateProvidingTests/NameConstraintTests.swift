import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

extension GeneralName {
    fileprivate static func dns(_ name: String) -> GeneralName { .dnsName(name) }
    fileprivate static func uri(_ text: String) -> GeneralName { .uniformResourceIdentifier(text) }
    fileprivate static func mail(_ address: String) -> GeneralName { .rfc822Name(address) }
}

/// Certificates below a CA with name constraints (RFC 5280, section 4.2.1.10).
@Suite struct NameConstraintTests {
    /// A leaf below a CA with constraints.
    struct Case: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var permitted: [GeneralName] = []
        var excluded: [GeneralName] = []
        var names: [GeneralName] = []
        /// `nil` for none.
        var subject: String? = "CN=leaf"
        var isValid: Bool
        /// Whether `openssl verify` says something else.
        var differs = false

        init(
            _ description: String, permitted: [GeneralName] = [], excluded: [GeneralName] = [], _ names: GeneralName...,
            subject: String? = "CN=leaf", isValid: Bool, differs: Bool = false
        ) {
            (testDescription, self.permitted, self.excluded, self.names) = (description, permitted, excluded, names)
            (self.subject, self.isValid, self.differs) = (subject, isValid, differs)
        }
    }

    private static func octets(_ bytes: UInt8...) -> GeneralName {
        .ipAddress(ASN1OctetString(contentBytes: bytes[...]))
    }

    private static func directory(_ name: String) -> GeneralName { .directoryName(Self.name(name)) }

    /// A name of attributes that are separated by commas, the first one first.
    private static func name(_ text: String) -> DistinguishedName {
        let types: [Substring: ASN1ObjectIdentifier] = [
            "CN": [2, 5, 4, 3], "O": [2, 5, 4, 10], "OU": [2, 5, 4, 11], "C": [2, 5, 4, 6],
            "E": [1, 2, 840, 113549, 1, 9, 1],
        ]
        return DistinguishedName(
            text.split(separator: ",").map { part in
                let pair = part.split(separator: "=", maxSplits: 1)
                let text = String(pair[1])
                let mail = pair[0] == "E" ? try? RelativeDistinguishedName.Attribute.Value(ia5String: text) : nil
                return RelativeDistinguishedName(
                    .init(type: types[pair[0]] ?? [2, 5, 4, 3], value: mail ?? .init(utf8String: text)))
            })
    }

    private static func upn(_ name: String) -> GeneralName {
        .otherName(
            .init(typeID: [1, 3, 6, 1, 4, 1, 311, 20, 2, 3], value: try? ASN1Any(erasing: ASN1UTF8String(name))))
    }

    private static let dns: [Case] = [
        Case("the domain", permitted: [.dns("a.test")], .dns("A.TEST"), isValid: true),
        Case("below it", permitted: [.dns("a.test")], .dns("x.y.a.test"), isValid: true),
        Case("a suffix that is not a label", permitted: [.dns("a.test")], .dns("ba.test"), isValid: false),
        Case("one of two", permitted: [.dns("a.test")], .dns("a.test"), .dns("b.test"), isValid: false),
        Case("another kind", permitted: [.dns("a.test")], .uri("x:y"), isValid: true),
        Case("one of the permitted", permitted: [.dns("b.test"), .dns("a.test")], .dns("a.test"), isValid: true),
        Case(
            "permitted and excluded", permitted: [.dns("a.test")], excluded: [.dns("x.a.test")], .dns("x.a.test"),
            isValid: false),
        Case("a wildcard within", permitted: [.dns("a.test")], .dns("*.a.test"), isValid: true),
        Case("a wildcard around", permitted: [.dns("x.a.test")], .dns("*.a.test"), isValid: false),
        Case(
            "a wildcard that covers the excluded", excluded: [.dns("x.a.test")], .dns("*.a.test"), isValid: false,
            differs: true),
        Case("a wildcard in the excluded", excluded: [.dns("a.test")], .dns("*.a.test"), isValid: false),
        Case("a wildcard stands for one label", excluded: [.dns("y.x.a.test")], .dns("*.a.test"), isValid: true),
        Case("a wildcard beside the excluded", excluded: [.dns("x.b.test")], .dns("*.a.test"), isValid: true),
        Case("all is excluded", excluded: [.dns("")], .dns("a.test"), isValid: false),
        Case("all is excluded, and there is no name", excluded: [.dns("")], isValid: true),
        Case(
            "a dot at the end does not hide", excluded: [.dns("a.test")], .dns("x.a.test."), isValid: false,
            differs: true),
        Case(
            "a part of a label as wildcard", excluded: [.dns("xa.test")], .dns("x*.test"), isValid: false, differs: true
        ),
        Case(
            "a constraint that is not a name", excluded: [.dns("a b.test")], .dns("b.test"), isValid: false,
            differs: true),
    ]

    private static let hosts: [Case] = [
        Case("a host", permitted: [.uri("a.test")], .uri("spiffe://A.test/x"), isValid: true),
        Case("below a host", permitted: [.uri("a.test")], .uri("spiffe://x.a.test/"), isValid: false),
        Case("below a domain", permitted: [.uri(".a.test")], .uri("https://x.a.test:8443/y?z"), isValid: true),
        Case("the domain itself", permitted: [.uri(".a.test")], .uri("https://a.test/"), isValid: false),
        Case("an excluded host", excluded: [.uri("a.test")], .uri("spiffe://a.test/x"), isValid: false),
        Case("a URI without a host", excluded: [.uri("a.test")], .uri("urn:x"), isValid: false),
        Case("a user in front", excluded: [.uri("a.test")], .uri("https://b@a.test/"), isValid: false, differs: true),
        Case("an address", excluded: [.uri("a.test")], .uri("https://10.1.1.1/"), isValid: false, differs: true),
    ]

    private static let mail: [Case] = [
        Case("no mail name", permitted: [.mail("a.test")], .dns("x"), isValid: true),
        Case("a host", permitted: [.mail("a.test")], .mail("x@A.test"), isValid: true),
        Case("another host", permitted: [.mail("a.test")], .mail("x@b.test"), isValid: false),
        Case("below a host", permitted: [.mail("a.test")], .mail("x@b.a.test"), isValid: false),
        Case("below a domain", permitted: [.mail(".a.test")], .mail("x@b.a.test"), isValid: true),
        Case("a mailbox", permitted: [.mail("x@a.test")], .mail("x@a.test"), isValid: true),
        Case("another mailbox", permitted: [.mail("x@a.test")], .mail("y@a.test"), isValid: false),
        Case("an excluded host", excluded: [.mail("a.test")], .mail("x@a.test"), isValid: false),
        Case("beside it", excluded: [.mail("a.test")], .mail("x@b.test"), isValid: true),
        Case("an excluded mailbox", excluded: [.mail("x@a.test")], .mail("x@a.test"), isValid: false),
        Case(
            "a mailbox in quotes", excluded: [.mail("x@a.test")], .mail("\"x\"@a.test"), isValid: false, differs: true),
        Case("emailAddress of the subject", permitted: [.mail("a.test")], subject: "E=x@b.test,CN=x", isValid: false),
        Case("emailAddress that is permitted", permitted: [.mail("a.test")], subject: "CN=x,E=x@a.test", isValid: true),
        Case(
            "emailAddress beside a DNS name", permitted: [.mail("a.test")], .dns("x"), subject: "E=x@b.test",
            isValid: false),
        Case("emailAddress that is excluded", excluded: [.mail("b.test")], subject: "E=x@b.test", isValid: false),
        Case(
            "the mail name counts, and not emailAddress", permitted: [.mail("a.test")], .mail("x@a.test"),
            subject: "E=x@b.test", isValid: true, differs: true),
    ]

    private static let directories: [Case] = [
        Case("the subject within", permitted: [directory("O=Example")], subject: "O=Example,CN=x", isValid: true),
        Case(
            "its letters and blanks", permitted: [directory("O=Example Ltd")], subject: "O= EXAMPLE  ltd ,CN=x",
            isValid: true),
        Case("the subject outside", permitted: [directory("O=Example")], subject: "O=Other,CN=x", isValid: false),
        Case("in another order", permitted: [directory("O=Example")], subject: "CN=x,O=Example", isValid: false),
        Case("no subject", permitted: [directory("O=Example")], .dns("x"), subject: nil, isValid: true),
        Case("an excluded subject", excluded: [directory("O=Example")], subject: "O=example,CN=x", isValid: false),
        Case("beside it", excluded: [directory("O=Example,OU=a")], subject: "O=Example,OU=b", isValid: true),
        Case(
            "an alternative name outside", permitted: [directory("O=Example")], directory("O=Other"),
            subject: "O=Example", isValid: false),
        Case(
            "an alternative name within", permitted: [directory("O=Example")], directory("O=Example,OU=a"),
            subject: "O=Example", isValid: true),
    ]

    private static let others: [Case] = [
        Case("an address within", permitted: [octets(10, 0, 0, 0, 255, 0, 0, 0)], octets(10, 1, 2, 3), isValid: true),
        Case("an address outside", permitted: [octets(10, 0, 0, 0, 255, 0, 0, 0)], octets(11, 1, 2, 3), isValid: false),
        Case(
            "an excluded address", excluded: [octets(10, 1, 2, 0, 255, 255, 255, 0)], octets(10, 1, 2, 3),
            isValid: false),
        Case(
            "a mask with holes", excluded: [octets(10, 0, 0, 3, 255, 0, 0, 255)], octets(11, 1, 2, 3), isValid: false,
            differs: true),
        Case("a user principal name", permitted: [upn("x")], upn("x"), isValid: false),
        Case("another user principal name", excluded: [upn("x")], upn("y"), isValid: false),
        Case("no user principal name", permitted: [upn("x")], .dns("x"), isValid: true),
        Case(
            "a registered identifier", excluded: [.registeredID([1, 2, 3])], .registeredID([1, 2, 4]), isValid: false),
        Case("no registered identifier", excluded: [.registeredID([1, 2, 3])], .dns("x"), isValid: true),
    ]

    private let root = Result { try TestParty("root") }
    private let issuing = Result { try TestParty("issuing") }

    private func chain(of one: Case) throws -> [X509Certificate] {
        let constraints = NameConstraints(permittedSubtrees: one.permitted, excludedSubtrees: one.excluded)
        let names =
            one.names.isEmpty
            ? [] : [try Certificate.Extension(SubjectAlternativeNames(one.names), critical: one.subject == nil)]
        let leaf = TestParty(
            named: one.subject.map(Self.name) ?? DistinguishedName(), key: .init(P256.Signing.PrivateKey()))
        return [
            try issuing.get().certify(leaf, isAuthority: false, names),
            try root.get().certify(issuing.get(), [Certificate.Extension(constraints, critical: true)]),
            try root.get().certify(),
        ]
    }

    @Test(
        "A name below a CA with constraints is within the permitted ones, and outside the excluded ones",
        arguments: dns + hosts + mail + directories + others)
    func constraints(one: Case) async throws {
        let chain = try chain(of: one)
        let result = try await CertificateChain.validation(
            of: chain[0], among: [chain[1]], underAnchors: IssuerIndex([chain[2]]), for: .client, at: Date())
        #expect((result.path != nil) == one.isValid, "\(result.obstacle ?? "")")
        if !one.isValid {
            #expect(
                result.obstacle?.contains("'CN=issuing,O=certprov tests' in its chain has name constraints that")
                    == true)
        }
        let directory = try TemporaryDirectory()
        for (name, certificate) in zip(["leaf", "issuing", "root"], chain) {
            try directory.write(certificate.pemRepresentation.utf8, to: name)
        }
        let openssl = try Subprocess(
            ["openssl", "verify", "-CAfile", "root", "-untrusted", "issuing", "leaf"], in: directory.path, .captured()
        ).wait()
        #expect((openssl.status == 0) == (one.isValid != one.differs), "openssl: \(openssl)")
    }

    @Test("A CA that certifies another key of its own is not below its own constraints, and its leaf is")
    func aCertificateOfItsOwnKey() async throws {
        let other = TestParty(named: try issuing.get().name, key: .init(P256.Signing.PrivateKey()))
        let permitted = NameConstraints(permittedSubtrees: [Self.directory("O=Example")], excludedSubtrees: [])
        let constrained = try root.get().certify(issuing.get(), [Certificate.Extension(permitted, critical: true)])
        let own = try issuing.get().certify(other)
        let anchor = try root.get().certify()
        for (subject, isValid) in [("O=Example,CN=x", true), ("O=Other,CN=x", false)] {
            let leaf = try other.certify(
                TestParty(named: Self.name(subject), key: .init(P256.Signing.PrivateKey())), isAuthority: false)
            let path = try await CertificateChain.validated(
                from: leaf, among: [own, constrained], trusting: [anchor], at: Date())
            #expect((path != nil) == isValid, "\(subject)")
        }
    }

    @Test("A name that cannot be read is refused below a CA with constraints")
    func namesThatCannotBeRead() async throws {
        let excluded = NameConstraints(excludedDNSDomains: ["a.test"])
        let authority = try root.get().certify(issuing.get(), [Certificate.Extension(excluded, critical: true)])
        let anchor = try root.get().certify()
        // A DNS name that is not ASCII; and a value that is not a list.
        for value: [UInt8] in [[0x30, 3, 0x82, 1, 0xff], [0x04, 1, 0]] {
            let leaf = try issuing.get().certify(
                TestParty("leaf"), isAuthority: false,
                [.init(oid: .X509ExtensionID.subjectAlternativeName, critical: false, value: value[...])])
            let path = try await CertificateChain.validated(
                from: leaf, among: [authority], trusting: [anchor], at: Date())
            #expect(path == nil, "\(value)")
        }
    }
}
