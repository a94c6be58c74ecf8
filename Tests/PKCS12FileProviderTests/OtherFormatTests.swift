import CertificateProviding
import PKCS12FileProvider
import SwiftASN1
import TestSupport
import Testing

/// Files that are something else than PKCS#12.
@Suite struct OtherFormatTests {
    private let builder = PFXBuilder()

    @Test("A file of another format is named, with the command that converts it")
    func theFormatIsNamed() async throws {
        let identity = try Samples.identity("other")
        let certificate = identity.certificate.pemRepresentation
        let key = PEMDocument(type: "PRIVATE KEY", derBytes: try identity.pkcs8).pemString + "\n"
        let pbes2: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 5, 13]
        let encrypted = builder.sequence(builder.sequence(PFXBuilder.oid(pbes2)), builder.octets([1, 2, 3]))
        let signedData: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 2]
        let cases: [([UInt8], String, String)] = [
            (Array((key + certificate).utf8), "is PEM,", "openssl pkcs12 -export -in PATH -out identity.p12"),
            (Array((" \n" + certificate).utf8), "PEM, and holds certificates without", "-export -in PATH -inkey KEY"),
            (Array(key.utf8), "PEM, and holds a private key without", "-export -inkey PATH -in CERTIFICATE"),
            (identity.certificate.derRepresentation, "a DER certificate", "openssl x509 -inform DER -in PATH"),
            (try identity.pkcs8, "a DER private key", "openssl pkey -inform DER -in PATH"),
            (encrypted, "a DER private key", "openssl pkey -inform DER -in PATH"),
            (
                builder.sequence(PFXBuilder.oid(signedData), builder.explicit([0x30, 0])), "PKCS#7",
                "openssl pkcs7 -inform DER -in PATH"
            ),
            ([0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2], "a Java keystore (JKS)", "-srckeystore PATH -srcstoretype JKS"),
            ([0xce, 0xce, 0xce, 0xce, 0, 0, 0, 2], "a Java keystore (JCEKS)", "-srckeystore PATH -srcstoretype JCEKS"),
            (
                builder.sequence(encrypted, builder.sequence(PFXBuilder.integer(1))), "a Java keystore (BCFKS)",
                "-srckeystore PATH -srcstoretype BCFKS"
            ),
        ]
        for (file, name, command) in cases {
            let fixture = try FileFixture(file)
            let error = try await PKCS12FileProvider.testing(fixture.path).failure()
            #expect(error.code == .malformedData && error.message.hasPrefix("\(fixture.path): "), "\(error)")
            #expect(error.message.contains(name), "\(error)")
            #expect(error.message.contains(command.replacing("PATH", with: fixture.path)), "\(error)")
        }
    }

    @Test("A damaged PKCS#12 file is not taken for another format")
    func aDamagedFileIsDamaged() async throws {
        let whole = builder.file(try builder.bags(of: try Samples.identity("cut"), name: "cut"))
        for file in [[], [0x30], Array(whole.prefix(whole.count / 2)), Array(whole.dropFirst(4))] {
            let fixture = try FileFixture(file)
            let error = try await PKCS12FileProvider.testing(fixture.path).failure()
            #expect(error.code == .malformedData && error.message.contains("or is not a PKCS#12 file"), "\(error)")
        }
    }

    @Test(
        "A real Java keystore is named",
        .enabled(if: FieldFiles.arePresent, "shared/testdata is not beside the checkout"),
        arguments: FieldFiles.rows.filter { $0.path.hasSuffix(".jceks") || $0.path.hasSuffix(".bcfks") })
    func realKeystores(row: FieldFiles.Row) async throws {
        let error = try await PKCS12FileProvider.testing(row.path).failure()
        #expect(error.code == .malformedData && error.message.contains("keytool -importkeystore"), "\(error)")
    }
}
