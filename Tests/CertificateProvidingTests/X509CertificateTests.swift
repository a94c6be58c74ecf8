import CertificateProviding
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

/// Certificates by `openssl`, read by us and by `openssl`.
@Suite struct X509CertificateTests {
    /// Makes a certificate for the sections of a configuration file and returns it with its directory.
    private func make(
        subject: String, extensions: String = "", mask: String = "utf8only", options: [String] = []
    ) throws -> (X509Certificate, TemporaryDirectory) {
        let directory = try TemporaryDirectory()
        let configuration = """
            [req]
            prompt = no
            distinguished_name = dn
            string_mask = \(mask)
            utf8 = yes
            x509_extensions = ext
            [dn]
            \(subject)
            [ext]
            basicConstraints = CA:FALSE
            \(extensions)
            """
        try directory.write(Array(configuration.utf8), to: "cnf")
        try Subprocess.run(
            ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
                + ["-config", "cnf", "-keyout", "key", "-outform", "DER", "-out", "der"] + options,
            in: directory.path)
        return (try X509Certificate(derRepresentation: try directory.read("der")), directory)
    }

    private func openssl(_ directory: TemporaryDirectory, _ options: String...) throws -> String {
        let output = try Subprocess.run(
            ["openssl", "x509", "-inform", "DER", "-in", "der", "-noout"] + options, in: directory.path)
        return String(decoding: output, as: UTF8.self).trimmingCharacters(in: .newlines)
    }

    static let subjects = [
        "CN = plain", "C = DE\nO = Example AG\nOU = a\n0.OU = b\nCN = c", "CN = \"a, b + c; d < e > f\"",
        "CN = \" leading and trailing \"", "CN = \"#hash\"", "CN = Zoë \u{1F600} 密码", "O = a = b",
        "DC = example\nemailAddress = a@example.org\nUID = u", "SN = Doe\nGN = Jane\nserialNumber = 1\ntitle = Dr",
        "CN = back\\\\slash", "CN = \"quote \\\" here\"", "O = one\n+OU = two\n+CN = three",
    ]

    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: subjects, ["utf8only", "nombstr", "default"])
    func writesNamesAsRFC4514(
        subject: String, mask: String
    ) throws {
        // Without UTF-8 there are only the older types, which do not have every character.
        let isLatin = subject.unicodeScalars.allSatisfy { $0.value < 0x100 }
        guard mask == "utf8only" || isLatin else { return }
        let (certificate, directory) = try make(subject: subject, mask: mask)
        let line = try openssl(directory, "-subject", "-nameopt", "esc_2253,esc_ctrl,dn_rev,sep_comma_plus,sname,utf8")
        let expected = line.replacing("subject=", with: "", maxReplacements: 1)
        // Of a relative name with several parts, openssl turns the order round as well.
        func parts(_ name: String) -> [Substring] { name.split(separator: "+").sorted() }
        #expect(parts(certificate.subject) == parts(expected))
        #expect(certificate.issuer == certificate.subject && certificate.isSelfIssued)
    }

    @Test("Names in older ASN.1 string types are read")
    func namesInOlderStringTypes() throws {
        let cases = [("nombstr", "CN = Zoë"), ("MASK:0x800", "CN = 密码"), ("MASK:0x100", "CN = 密码")]
        for (mask, subject) in cases {
            let (certificate, _) = try make(subject: subject, mask: mask)
            #expect(certificate.subject == subject.replacing(" ", with: ""))
        }
    }

    @Test func controlCharactersAreEscaped() throws {
        let (certificate, _) = try make(
            subject: "CN = x", options: ["-utf8", "-subj", "/CN=a\u{1b}[2J\u{7f}\u{85}\u{202e}b\nc"])
        #expect(certificate.subject == "CN=a\\1b[2J\\7f\\c2\\85\\e2\\80\\aeb\\0ac")
    }

    @Test("An empty subject is read as an empty name")
    func anEmptySubject() throws {
        let (certificate, _) = try make(subject: "CN = x", options: ["-subj", "/"])
        #expect(certificate.subject.isEmpty && certificate.issuer.isEmpty)
    }

    @Test("Subject alternative names of all kinds are read")
    func alternativeNamesOfAllKinds() throws {
        let names = """
            subjectAltName = DNS:host.example, DNS:*.example, IP:192.0.2.1, IP:2001:db8::1, IP:::, IP:::1, \
            IP:1:0:0:2:0:0:0:3, IP:1:2:3:4:5:6:7:8, email:a@example.org, URI:https://example.org/?a=b, RID:1.2.3.4, \
            dirName:dir, otherName:1.3.6.1.4.1.311.20.2.3;UTF8:user@realm
            [dir]
            CN = directory
            """
        let (certificate, _) = try make(subject: "CN = x", extensions: names)
        #expect(
            certificate.subjectAlternativeNames.map(\.description) == [
                "dns:host.example", "dns:*.example", "ip:192.0.2.1", "ip:2001:db8::1", "ip:::", "ip:::1",
                "ip:1:0:0:2::3", "ip:1:2:3:4:5:6:7:8", "email:a@example.org", "uri:https://example.org/?a=b",
                "rid:1.2.3.4", "dirname:CN=directory", "upn:user@realm",
            ])
        #expect(
            certificate.subjectAlternativeNames.suffix(5) == [
                .email("a@example.org"), .uri("https://example.org/?a=b"), .registeredID([1, 2, 3, 4]),
                .directory(try DistinguishedName { CommonName("directory") }), .upn("user@realm"),
            ])
    }

    @Test(
        "A name that cannot be read is kept as its bytes, and hides no other",
        arguments: [
            ("82:02:C3:A9", .encoded([0x82, 2, 0xc3, 0xa9]), "der:8202c3a9"),
            ("89:01:00", .encoded([0x89, 1, 0]), "der:890100"), ("A3:00", .encoded([0xa3, 0]), "x400"),
            ("A5:02:81:00", .encoded([0xa5, 2, 0x81, 0]), "edi"), ("87:03:01:02:03", .ip([1, 2, 3]), "ip:010203"),
            ("A4:02:05:00", .encoded([0xa4, 2, 5, 0]), "der:a4020500"),
            ("A0:03:06:01:2A", .other([1, 2], []), "othername:1.2"),
            ("A0:08:06:01:2A:A0:03:0C:01:61", .other([1, 2], [0x0c, 1, 0x61]), "othername:1.2"),
            // A UPN of another string type, and one that is not UTF-8.
            (
                "A0:11:\(upn):A0:03:16:01:61", .other([1, 3, 6, 1, 4, 1, 311, 20, 2, 3], [0x16, 1, 0x61]),
                "othername:1.3.6.1.4.1.311.20.2.3"
            ),
            (
                "A0:11:\(upn):A0:03:0C:01:FF", .other([1, 3, 6, 1, 4, 1, 311, 20, 2, 3], [0x0c, 1, 0xff]),
                "othername:1.3.6.1.4.1.311.20.2.3"
            ),
        ] as [(String, AlternativeName, String)])
    func unreadableNames(der: String, name: AlternativeName, text: String) throws {
        let length = [UInt8(der.split(separator: ":").count + 3)].hexEncoded
        let list = "30:\(length):\(der):82:01:61"
        let (certificate, _) = try make(subject: "CN = x", extensions: "subjectAltName = DER:\(list)")
        #expect(certificate.subjectAlternativeNames == [name, .dns("a")])
        #expect(name.description == text)
        // A renewal asks for the same names.
        #expect(try CertificateRequest.Names(of: certificate).alternativeNames == [name, .dns("a")])
    }

    private static let upn = "06:0A:2B:06:01:04:01:82:37:14:02:03"

    @Test("An extension that is not a list of names is kept as its bytes")
    func anUnreadableList() throws {
        let (certificate, _) = try make(subject: "CN = x", extensions: "subjectAltName = DER:82:01:61")
        #expect(certificate.subjectAlternativeNames == [.encoded([0x82, 1, 0x61])])
    }

    @Test(
        "Serial numbers are shown as openssl shows them",
        arguments: [
            "0", "1", "127", "128", "255", "256", "32769", "-1", "-128", "-129", "-256", "0x00ff",
            "0x7f" + String(repeating: "ab", count: 30),
        ])
    func serialNumbers(number: String) throws {
        let (certificate, directory) = try make(subject: "CN = x", options: ["-set_serial", number])
        let line = try openssl(directory, "-serial").replacing("serial=", with: "")
        #expect(certificate.serialNumberText == line.lowercased())
    }

    @Test(
        "Validity dates are read to the second and decide the status of the certificate",
        arguments: [
            ("491231235959Z", 2_524_607_999), ("20500101000000Z", 2_524_608_000), ("99991231235959Z", 253_402_300_799),
            ("500101000000Z", -631_152_000), ("700101000000Z", 0), ("20240229120000Z", 1_709_208_000),
        ])
    func dates(text: String, seconds: Int) throws {
        let directory = try TemporaryDirectory()
        try Subprocess.run(
            ["openssl", "req", "-x509", "-nodes", "-newkey", "ed25519", "-subj", "/CN=x", "-keyout", "k", "-out", "c"],
            in: directory.path)
        let database =
            "[ca]\ndefault_ca=d\n[d]\ndatabase=db\nnew_certs_dir=.\nserial=serial\npolicy=p\ndefault_md=default\n[p]\ncommonName=supplied\n"
        try directory.write(Array(database.utf8), to: "cnf")
        try directory.write([], to: "db")
        try directory.write(Array("01\n".utf8), to: "serial")
        try Subprocess.run(
            ["openssl", "req", "-new", "-key", "k", "-subj", "/CN=y", "-out", "csr"], in: directory.path)
        try Subprocess.run(
            ["openssl", "ca", "-batch", "-notext", "-config", "cnf", "-cert", "c", "-keyfile", "k", "-in", "csr"]
                + ["-startdate", text, "-enddate", text, "-out", "pem"], in: directory.path)
        let der = try Subprocess.run(["openssl", "x509", "-in", "pem", "-outform", "DER"], in: directory.path)
        let certificate = try X509Certificate(derRepresentation: der)
        #expect(certificate.notValidBefore.timeIntervalSince1970 == Double(seconds))
        #expect(certificate.notValidAfter == certificate.notValidBefore)
        #expect(certificate.status(at: certificate.notValidAfter) == .valid)
        #expect(certificate.status(at: certificate.notValidAfter.addingTimeInterval(1)) == .expired)
        #expect(certificate.status(at: certificate.notValidAfter.addingTimeInterval(-1)) == .notYetValid)
    }

    @Test(arguments: [
        ("", true), ("keyUsage = digitalSignature", true), ("keyUsage = keyEncipherment", false),
        ("extendedKeyUsage = clientAuth", true), ("extendedKeyUsage = serverAuth", false),
        ("extendedKeyUsage = anyExtendedKeyUsage", false), ("extendedKeyUsage = emailProtection, clientAuth", true),
        ("keyUsage = keyAgreement\nextendedKeyUsage = clientAuth", false),
    ]) func clientAuthentication(extensions: String, isPermitted: Bool) throws {
        #expect(try make(subject: "CN = x", extensions: extensions).0.permits(.client) == isPermitted)
    }

    @Test("The fingerprint and the PEM text are those of openssl")
    func fingerprintAndPEM() throws {
        let (certificate, directory) = try make(subject: "CN = x")
        let line = try openssl(directory, "-fingerprint", "-sha256")
        #expect(
            line.hasSuffix(
                stride(from: 0, to: 64, by: 2).map {
                    certificate.sha256Fingerprint.hexEncoded.uppercased().dropFirst($0).prefix(2)
                }.joined(separator: ":")))
        let pem = try Subprocess.run(["openssl", "x509", "-inform", "DER", "-in", "der"], in: directory.path)
        #expect(certificate.pemRepresentation == String(decoding: pem, as: UTF8.self))
    }

    /// Both are met in the field; neither may hide a certificate.
    @Test(
        "A certificate is read with any encoding of an extension's critical flag",
        arguments: [0x00, 0x01, 0xff] as [UInt8])
    func criticalInEveryForm(value: UInt8) throws {
        let (certificate, _) = try make(subject: "CN = x", extensions: "keyUsage = critical, keyEncipherment")
        let critical: [UInt8] = [0x06, 0x03, 0x55, 0x1d, 0x0f, 0x01, 0x01, 0xff]
        var der = certificate.derRepresentation
        let place = try #require(der.firstRange(of: critical))
        der[place.upperBound - 1] = value
        let changed = try X509Certificate(derRepresentation: der)
        #expect(changed.subject == "CN=x" && !changed.permits(.client))
    }

    @Test("A certificate with many extensions is read")
    func anyNumberOfExtensions() throws {
        let more = (1...60).map { "1.2.3.4.\($0) = ASN1:NULL" }.joined(separator: "\n")
        let (certificate, _) = try make(subject: "CN = x", extensions: "\(more)\nsubjectAltName = DNS:host.example")
        #expect(certificate.subjectAlternativeNames == [.dns("host.example")])
    }

    @Test("The error for a damaged certificate does not mention ASN1 internals")
    func theMessageForDamageIsForPeople() throws {
        let error = failure { try X509Certificate(derRepresentation: [0x30, 0x03, 0x02, 0x01, 0x01]) }
        #expect(error?.code == .malformedData && error?.message.contains("ASN1") == false)
    }
}
