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
        let names = try CertificateRequest.Names(
            subject: subject, subjectAlternativeNames: alternatives.map { try AlternativeName($0) })
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
        #expect(failure { try CertificateRequest.Names(subject: text) }?.code == .malformedData)
    }

    /// With unusual string types and names.
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

    @Test("A directory's names have the octets that it looks for, beside an RSA key and a device's URN")
    func namesForDirectories() async throws {
        let alternatives = try AlternativeName.list(
            #"sid:S-1-5-21-1-2-3-1001, upn:alice@example.com, uri:urn:device:SN-1, "uri:tag:a,2022:x""#)
        #expect(alternatives[0].sid == "S-1-5-21-1-2-3-1001" && alternatives.compactMap(\.sid).count == 1)
        let rsa = try SoftwareKey.generate(.rsa2048, location: .file)
        let names = try CertificateRequest.Names(subject: "CN=alice", subjectAlternativeNames: alternatives)
        let pem = try await CertificateRequest(names, key: rsa).pemRepresentation
        let tree = String(
            decoding: try Subprocess.run(["openssl", "asn1parse"], input: Array(pem.utf8)), as: UTF8.self)
        func hex(_ text: String) -> String { DisplayText.hexadecimal(Array(text.utf8)).uppercased() }
        let sid = hex("S-1-5-21-1-2-3-1001")
        // SEQUENCE { [0] otherName { 1.3.6.1.4.1.311.25.2.1, [0] OCTET STRING } }.
        #expect(tree.contains("[HEX DUMP]:3025A023060A2B060104018237190201A0150413" + sid), "\(tree)")
        #expect(tree.contains("8634" + hex("tag:microsoft.com,2022-09-14:sid:") + sid), "\(tree)")
        #expect(tree.contains("860F" + hex("urn:device:SN-1")), "\(tree)")
        for wrong in ["sid:", "sid:S-1", "sid:S-2-5-21", "sid:S-1-5-x", "sid:S-1-5-21 "] {
            #expect(failure { try AlternativeName(wrong) }?.message.contains("S-1-5-21-…") == true, "\(wrong)")
        }
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

    @Test("OpenSSL reads each kind of name in a request as it was written")
    func openssl() async throws {
        let names: [AlternativeName] = [
            .dns("*.host.example"), .ip([192, 0, 2, 1]), .email("me@example.org"), .uri("https://a.example/x,y"),
            .upn("z\u{f6}e@example.com"), .registeredID([1, 2, 3]), .other([1, 2, 4], [0x0c, 1, 0x78]),
            .directory(try DistinguishedName { CommonName("directory") }), .encoded([0x82, 1, 0x61]),
        ]
        let request = try await CertificateRequest(.init(subject: "CN=x", subjectAlternativeNames: names), key: key)
        let directory = try TemporaryDirectory()
        let file = try directory.write(request.pemRepresentation.utf8, to: "request.pem")
        let output = try Subprocess.run(["openssl", "req", "-in", file, "-noout", "-verify", "-text"])
        let text = String(decoding: output, as: UTF8.self)
        let expected =
            "DNS:*.host.example, IP Address:192.0.2.1, email:me@example.org, URI:https://a.example/x,y, "
            + "othername: UPN::z\u{f6}e@example.com, Registered ID:1.2.3, othername: 1.2.4::x, "
            + "DirName:/CN=directory, DNS:a"
        #expect(text.contains(expected), "\(text)")
    }

    @Test(
        "A malformed subject alternative name is refused, and the error says what is expected",
        arguments: [
            ("host.example", "write dns:, ip:, email:, uri:, upn: or sid: before it"), ("dns:", "must be ASCII"),
            ("dns:a b", "must be ASCII"), ("dns:a..b", "labels of 1 to 63"), ("dns:\u{e9}.example", "ASCII form"),
            ("dns:a,dns:b", "has no comma"), ("dns:" + String(repeating: "a", count: 64), "labels of 1 to 63"),
            ("ip:host", "IPv4 or IPv6"), ("ip:1.2.3", "IPv4 or IPv6"), ("email:me", "email address"),
            ("email:a@b@c", "email address"), ("uri:x", "no scheme"), ("uri::x", "no scheme"),
            ("uri:\"https://a\"", "double quotes"), ("dirname:CN=x", "the kinds are dns:"),
            ("upn:", "alice@example.com"), ("upn:alice", "alice@example.com"), ("upn:a@b@c", "alice@example.com"),
            ("upn:a b@c", "alice@example.com"), ("upn:a\u{0}@c", "alice@example.com"),
        ])
    func otherAlternativeNamesAreRefused(text: String, reason: String) {
        let error = failure { try AlternativeName(text) }
        #expect(error?.code == .malformedData)
        for part in ["is not a valid subject alternative name", reason] {
            #expect(error?.message.contains(part) == true, "\(error as Any)")
        }
    }

    @Test(
        "A name that no certificate can have is not asked for",
        arguments: [
            .dns("a b"), .ip([1, 2, 3]), .email("\u{e9}@a"), .uri("x"), .upn("x"), .other([1, 2], []),
            .other([1, 2], [0x0c, 9]), .encoded([1]),
        ] as [AlternativeName])
    func unusableNames(name: AlternativeName) {
        #expect(
            failure { try CertificateRequest.Names(subject: "", subjectAlternativeNames: [name]) }?.code
                == .malformedData)
    }

    @Test(
        "A list of names is separated by commas, and a name with a comma is in double quotes",
        arguments: [
            ("", []), ("dns:a", [.dns("a")]), (" dns:a , ip:192.0.2.1,", [.dns("a"), .ip([192, 0, 2, 1])]),
            (#""uri:https://a.example/x,y", dns:host"#, [.uri("https://a.example/x,y"), .dns("host")]),
            (#"dns:host ,"upn:a,\"\\b@c" "#, [.dns("host"), .upn(#"a,"\b@c"#)]), (#""dns:a""#, [.dns("a")]),
        ] as [(String, [AlternativeName])])
    func lists(text: String, names: [AlternativeName]) throws {
        #expect(try AlternativeName.list(text) == names)
    }

    @Test(
        "A mistake in a list of names is refused, and the error says what is expected",
        arguments: [
            ("dns:a, b", "'b'"), ("uri:https://a/x,y", "put a name that has a comma in double quotes"),
            (#""uri:https://a/x,y"#, "the closing double quote is missing"),
            (#""dns:a" dns:b"#, "'dns:a' is not a valid subject alternative name: a comma is expected"),
            (#""upn:a\b@c""#, #"write \" for " and \\ for \"#), (#""upn:a@c\"#, "double quotes"),
            (#""""#, "write dns:"), (#"uri:"https://a/x,y""#, "before its 'uri:'"),
        ])
    func malformedLists(text: String, reason: String) {
        let error = failure { try AlternativeName.list(text) }
        #expect(error?.code == .malformedData && error?.message.contains(reason) == true, "\(error as Any)")
    }

    @Test(
        "Names are compared as RFC 5280 demands",
        arguments: [
            ("dns:HOST.example", "dns:host.EXAMPLE", true), ("dns:a.example", "dns:b.example", false),
            ("ip:2001:db8::1", "ip:2001:DB8:0:0::1", true), ("ip:192.0.2.1", "ip:192.0.2.2", false),
            ("email:me@HOST.example", "email:me@host.example", true),
            ("email:Me@host.example", "email:me@host.example", false),
            ("uri:HTTPS://u@HOST.example/A", "uri:https://u@host.example/A", true),
            ("uri:https://host.example/A", "uri:https://host.example/a", false),
            ("uri:https://U@host.example", "uri:https://u@host.example", false), ("uri:URN:x", "uri:urn:x", true),
            ("uri:urn:X", "uri:urn:x", false), ("uri:a://HOST", "uri:a://host", true),
            ("upn:Alice@example.com", "upn:alice@EXAMPLE.com", true), ("upn:a@b", "email:a@b", false),
        ])
    func comparison(one: String, other: String, areSame: Bool) throws {
        #expect(try (AlternativeName(one).normalized == AlternativeName(other).normalized) == areSame)
    }

    @Test("Directory names are compared without case and string type")
    func directoryNames() throws {
        func name(_ value: RelativeDistinguishedName.Attribute.Value) -> AlternativeName {
            .directory(DistinguishedName([.init(.init(type: [2, 5, 4, 10], value: value))]))
        }
        let printable = name(try .init(printableString: "Example"))
        #expect(printable != name(.init(utf8String: "example")))
        #expect(printable.normalized == name(.init(utf8String: "example")).normalized)
        #expect(printable.normalized != name(.init(utf8String: "other")).normalized)
    }

    /// The key's error arrives unchanged.
    @Test func theKeysErrorIsPassedOn() async throws {
        let gone = TestKey(key) { _, _ throws(ProviderError) in
            throw ProviderError(.tokenNotPresent, "Gone.")
        }
        let names = try CertificateRequest.Names(subject: "CN=x")
        #expect(await failure { try await CertificateRequest(names, key: gone) }?.code == .tokenNotPresent)
    }

    @Test func aSignatureOfAnotherKeyIsNoRequest() async throws {
        let other = try TestAuthority().issue("other").key
        let names = try CertificateRequest.Names(subject: "CN=x")
        #expect(
            await failure { try await CertificateRequest(names, key: TestKey(other, publicKey: key.publicKey)) }?.code
                == .keyMismatch)
    }
}
