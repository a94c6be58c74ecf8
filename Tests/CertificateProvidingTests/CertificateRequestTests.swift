import CertificateProviding
import SwiftASN1
import TestSupport
import Testing
import X509

@Suite struct CertificateRequestTests {
    private let key: any IdentityKey

    init() throws { key = try TestAuthority().issue("key").key }

    private func request(
        _ subject: String, _ alternatives: [String] = []
    ) async throws -> CertificateSigningRequest {
        let names = try CertificateRequest.Names(subject: subject, subjectAlternativeNames: alternatives)
        let request = try await CertificateRequest(names, key: key)
        return try CertificateSigningRequest(derEncoded: request.derRepresentation)
    }

    @Test(arguments: [
        ("CN=client,O=Example", "CN=client,O=Example"), (" cn = a b , o=x ", "CN=a b,O=x"),
        ("CN=a\\, b+OU=c", "CN=a\\, b+OU=c"), ("CN=\\c3\\a9\\20", "CN=\u{e9}\\ "), ("2.5.4.3=x", "CN=x"),
        ("CN=\\#1,DC=example,DC=org", "CN=\\#1,DC=example,DC=org"), ("CN=#0c0178", "CN=x"),
        ("1.3.6.1.4.1.99=x,C=DE", "1.3.6.1.4.1.99=x,C=DE"), ("E=me@example.org", "emailAddress=me@example.org"),
    ])
    func namesAreReadAsTheyAreShown(text: String, expected: String) async throws {
        let subject = try await request(text).subject
        #expect(subject == (try await request(expected).subject))
    }

    @Test func theFirstNameIsTheMostSpecific() async throws {
        let subject = try await request("CN=client,O=Example,C=DE").subject
        let expected = try DistinguishedName {
            CountryName("DE"); OrganizationName("Example"); CommonName("client")
        }
        #expect(subject == expected)
        #expect(try CertificateRequest.Names(subject: "CN=a,CN=b,O=c").commonName == "a")
        #expect(try CertificateRequest.Names(commonName: "a,b=c").commonName == "a,b=c")
    }

    @Test(
        "A malformed subject is refused",
        arguments: [
            "client", "CN", "CN=", "=x", "CN=a,", "CN=a;O=b", "CN=a\\", "CN=a\\4", "CN=a\"b\"", "XY=a", "1.x=a",
            "3.1=a",
            "CN=#1", "CN=#zz", "CN=#0c05", "C=\u{e9}", "CN=\\ff", "E=\u{e9}", "CN=a\0b", "+", ",",
        ])
    func otherTextIsRefused(text: String) {
        #expect { try CertificateRequest.Names(subject: text) } throws: {
            ($0 as? CertificateProviderError)?.code == .malformedData
        }
    }

    /// With string types and names that nobody would choose.
    @Test func theNamesOfACertificateAreAskedForByteForByte() async throws {
        let subject = try DistinguishedName([
            RelativeDistinguishedName(.init(type: [2, 5, 4, 10], value: .init(printableString: "Example"))),
            RelativeDistinguishedName(
                .init(type: [2, 5, 4, 3], value: .init(asn1Any: ASN1Any(derEncoded: [0x1e, 4, 0, 0x61, 0, 0x62])))),
        ])
        let other: [UInt8] = [0x30, 9, 0xa0, 7, 0x06, 1, 0x2a, 0xa0, 2, 5, 0]
        let alternatives = Certificate.Extension(
            oid: .X509ExtensionID.subjectAlternativeName, critical: true, value: other[...])
        let authority = try TestParty("authority")
        let certificate = try authority.certify(authority.key.publicKey, as: subject, [alternatives])
        let names = try CertificateRequest.Names(of: certificate)
        let request = try CertificateSigningRequest(
            derEncoded: try await CertificateRequest(names, key: key).derRepresentation)
        var serializer = DER.Serializer()
        try serializer.serialize(request.subject)
        #expect(serializer.serializedBytes == certificate.subjectDER)
        #expect(try request.attributes.extensionRequest?.extensions.map(\.self) == [alternatives])
    }

    @Test func alternativeNamesAreAsked() async throws {
        let asked = ["dns:*.host.example", "ip:192.0.2.1", "ip:2001:db8::7", "email:me@example.org", "uri:urn:x:y"]
        let request = try await request("", asked)
        let attribute = try #require(try request.attributes.extensionRequest)
        let names = try #require(try attribute.extensions.subjectAlternativeNames)
        #expect(names.count == asked.count)
        // Without a subject they are what the certificate is about.
        #expect(attribute.extensions.first?.critical == true)
        #expect(request.publicKey.isValidSignature(request.signature, for: request))
    }

    @Test(
        "A malformed subject alternative name is refused",
        arguments: [
            "host.example", "dns:", "dns:a b", "dns:a..b", "dns:\u{e9}.example", "ip:host", "ip:1.2.3", "email:me",
            "email:a@b@c", "uri:x", "uri::x", "dirname:CN=x", "dns:" + String(repeating: "a", count: 64),
        ])
    func otherAlternativeNamesAreRefused(text: String) {
        #expect { try CertificateRequest.Names(subject: "", subjectAlternativeNames: [text]) } throws: {
            ($0 as? CertificateProviderError)?.code == .malformedData
        }
    }

    /// What the key says arrives as it is.
    @Test func theKeysErrorIsPassedOn() async throws {
        struct Gone: IdentityKey {
            let publicKey: PublicKeyInfo
            let signatureSchemes = [SignatureScheme.ecdsaP256SHA256]
            let location = KeyLocation.token
            func signature(
                for message: [UInt8], using scheme: SignatureScheme
            ) async throws(CertificateProviderError) -> [UInt8] {
                throw CertificateProviderError(.tokenNotPresent, "Gone.")
            }
        }
        let names = try CertificateRequest.Names(subject: "CN=x")
        await #expect {
            _ = try await CertificateRequest(names, key: Gone(publicKey: key.publicKey))
        } throws: { ($0 as? CertificateProviderError)?.code == .tokenNotPresent }
    }

    @Test func aSignatureOfAnotherKeyIsNoRequest() async throws {
        struct Mixed: IdentityKey {
            let publicKey: PublicKeyInfo
            let other: any IdentityKey
            var signatureSchemes: [SignatureScheme] { other.signatureSchemes }
            let location = KeyLocation.token
            func signature(
                for message: [UInt8], using scheme: SignatureScheme
            ) async throws(CertificateProviderError) -> [UInt8] {
                try await other.signature(for: message, using: scheme)
            }
        }
        let other = try TestAuthority().issue("other").key
        let names = try CertificateRequest.Names(subject: "CN=x")
        await #expect {
            _ = try await CertificateRequest(names, key: Mixed(publicKey: key.publicKey, other: other))
        } throws: { ($0 as? CertificateProviderError)?.code == .keyMismatch }
    }
}
