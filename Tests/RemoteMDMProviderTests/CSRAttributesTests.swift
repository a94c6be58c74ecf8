import CertificateProviding
import Enrolment
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// The attributes that a server wants in requests, and their effect.
@Suite(.timeLimit(.minutes(20))) struct CSRAttributesTests {
    private static let extendedKeyUsage: ASN1ObjectIdentifier = [2, 5, 29, 37]
    private static let rsa: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 1, 1]
    private static let ec: ASN1ObjectIdentifier = [1, 2, 840, 10045, 2, 1]

    private func attributes(_ build: (inout DER.Serializer) throws -> Void) throws -> CSRAttributes {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence, build)
        return try CSRAttributes(derRepresentation: serializer.serializedBytes)
    }

    /// An attribute with its set of values.
    private func attribute(
        _ type: ASN1ObjectIdentifier, _ coder: inout DER.Serializer, _ values: (inout DER.Serializer) throws -> Void
    ) throws {
        try coder.appendConstructedNode(identifier: .sequence) { coder in
            try coder.serialize(type)
            try coder.appendConstructedNode(identifier: .set, values)
        }
    }

    private typealias Wish = (type: ASN1ObjectIdentifier, isCritical: Bool, value: [UInt8])

    private func template(_ extensions: [Wish]) throws -> CSRAttributes {
        try attributes { coder in
            try attribute(CSRAttributes.extensionRequest, &coder) { coder in
                try coder.appendConstructedNode(identifier: .sequence) { coder in
                    for one in extensions {
                        try coder.appendConstructedNode(identifier: .sequence) { coder in
                            try coder.serialize(one.type)
                            if one.isCritical { try coder.serialize(true) }
                            try coder.serialize(ASN1OctetString(contentBytes: one.value[...]))
                        }
                    }
                }
            }
        }
    }

    private func request(
        _ wishes: CSRAttributes, names: [String] = [], key: any IdentityKey
    ) async throws -> CertificateSigningRequest {
        let names = try CertificateRequest.Names(
            subject: "CN=client", subjectAlternativeNames: names.map { try AlternativeName($0) })
        return try CertificateSigningRequest(
            derEncoded: await RequestContent(names: names, wishes: wishes).signed(with: key).derRepresentation)
    }

    private func extensions(
        _ wishes: CSRAttributes, names: [String] = [], key: any IdentityKey
    ) async throws -> Certificate.Extensions {
        try await request(wishes, names: names, key: key).attributes.extensionRequest?.extensions ?? .init()
    }

    @Test(arguments: [true, false]) func namedExtensionsAreFilledIn(inRequest: Bool) async throws {
        let types: [ASN1ObjectIdentifier] = [
            [2, 5, 29, 15], [2, 5, 29, 17], [2, 5, 29, 37], [1, 3, 6, 1, 1, 1, 1, 22],
        ]
        let wishes = try attributes { coder in
            if inRequest {
                try attribute(CSRAttributes.extensionRequest, &coder) { coder in
                    for type in types { try coder.serialize(type) }
                }
            } else {
                for type in types { try coder.serialize(type) }
            }
        }
        for key in [try TestKeys.rsa.get(), try TestKeys.p256.get()] {
            let asked = try await extensions(wishes, names: ["dns:client.example"], key: key)
            let isRSA = key.publicKey.algorithm == .rsa
            #expect(try asked.keyUsage == KeyUsage(digitalSignature: true, keyEncipherment: isRSA))
            #expect(try asked.extendedKeyUsage == ExtendedKeyUsage([.clientAuth]))
            #expect(try asked.subjectAlternativeNames?.map(\.self) == [.dnsName("client.example")])
            #expect(asked.count == 3)
        }
        #expect(try await extensions(wishes, key: TestKeys.p256.get()).count == 2)
    }

    @Test("Complete extension values are taken from the server, empty ones are filled in")
    func wholeValuesAreTakenAndTemplatesFilledIn() async throws {
        let purposes: [UInt8] = [0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 4]
        let key = try TestKeys.p256.get()
        let whole = try template([
            (Self.extendedKeyUsage, false, purposes), ([2, 5, 29, 15], true, [3, 2, 5, 0xa0]),
            ([2, 5, 29, 17], false, [0x30, 3, 0x82, 1, 0x61]), ([1, 2, 3, 4], true, [5, 0]),
        ])
        let asked = try await extensions(whole, key: key)
        #expect(try asked.extendedKeyUsage == ExtendedKeyUsage([.emailProtection]))
        #expect(try asked.keyUsage == KeyUsage(digitalSignature: true, keyEncipherment: true))
        #expect(try asked.subjectAlternativeNames?.map(\.self) == [.dnsName("a")])
        #expect(asked[oid: [1, 2, 3, 4]]?.value == [5, 0] && asked[oid: [1, 2, 3, 4]]?.critical == true)
        // Configured names stand.
        let named = try await extensions(whole, names: ["dns:client.example"], key: key)
        #expect(try named.subjectAlternativeNames?.map(\.self) == [.dnsName("client.example")])
        let empty = try template([
            (Self.extendedKeyUsage, false, []), ([2, 5, 29, 15], true, [3, 1, 0]),
            ([2, 5, 29, 17], false, [0x30, 2, 0x82, 0]), ([1, 2, 3, 4], false, []),
        ])
        let filled = try await extensions(empty, key: key)
        #expect(try filled.extendedKeyUsage == ExtendedKeyUsage([.clientAuth]))
        #expect(try filled.keyUsage == KeyUsage(digitalSignature: true))
        #expect(filled.count == 2)
    }

    @Test("CSR attributes with too many or too long extensions are refused")
    func tooMuchIsRefused() throws {
        let long: [Wish] = [([1, 2, 3], false, [UInt8](repeating: 5, count: 5000))]
        let many: [Wish] = (0..<20).map { ([1, 2, $0], false, [5, 0]) }
        for extensions in [long, many] {
            let error = #expect(throws: ProviderError.self) { try template(extensions) }
            #expect(error?.code == .protocolError)
        }
    }

    private static let hashes: [(ASN1ObjectIdentifier, Certificate.SignatureAlgorithm, KeyType)] = [
        ([1, 2, 840, 10045, 4, 3, 4], .sha256WithRSAEncryption, .p521),
        ([2, 16, 840, 1, 101, 3, 4, 2, 3], .sha512WithRSAEncryption, .p521),
        ([2, 16, 840, 1, 101, 3, 4, 2, 2], .sha384WithRSAEncryption, .p384),
        ([1, 2, 840, 113549, 1, 1, 12], .sha384WithRSAEncryption, .rsa2048),
    ]

    @Test(arguments: hashes)
    func theHashThatIsWantedIsUsedWhereTheKeyCan(
        wish: ASN1ObjectIdentifier, algorithm: Certificate.SignatureAlgorithm, type: KeyType
    ) async throws {
        let wishes = try attributes { try $0.serialize(wish) }
        #expect(try wishes.keyToMake() == type)
        #expect(try await request(wishes, key: TestKeys.rsa.get()).signatureAlgorithm == algorithm)
        // Another hash than that of its curve would be none that TLS knows.
        #expect(try await request(wishes, key: TestKeys.p256.get()).signatureAlgorithm == .ecdsaWithSHA256)
    }

    @Test func keysThatCannotBeMadeAreNamed() throws {
        func refusal(_ wishes: CSRAttributes) -> String {
            let error = #expect(throws: ProviderError.self) { try wishes.keyToMake() }
            #expect(error?.code == .unsupportedAlgorithm)
            return error?.message ?? ""
        }
        let large = try attributes { try attribute(Self.rsa, &$0) { try $0.serialize(8192) } }
        #expect(refusal(large).contains("RSA 8192"))
        let brainpool: ASN1ObjectIdentifier = [1, 3, 36, 3, 3, 2, 8, 1, 1, 7]
        #expect(
            refusal(try attributes { try attribute(Self.ec, &$0) { try $0.serialize(brainpool) } })
                .contains("brainpoolP256r1"))
        let ed448: ASN1ObjectIdentifier = [1, 3, 101, 113]
        #expect(refusal(try attributes { try $0.serialize(ed448) }).contains("Ed448"))
        // One that can be made is among them.
        let both = try attributes { coder in
            try coder.serialize(ed448)
            try attribute(Self.rsa, &coder) { try $0.serialize(4096) }
        }
        #expect(try both.keyToMake() == .rsa4096)
        #expect(try attributes { try $0.serialize(Self.ec) }.keyToMake() == nil)
        #expect(try attributes { try $0.serialize([1, 2, 3, 4] as ASN1ObjectIdentifier) } == CSRAttributes())
    }

    @Test(
        "Enrolment and renewal succeed with a server that enforces its CSR attributes",
        arguments: [
            ["extension:2.5.29.37"], ["extension:2.5.29.15", "extension:2.5.29.17"], ["hash:sha512"],
            ["hash:sha384", "key:rsa:2048"], ["extension:2.5.29.37", "challengePassword"],
        ])
    func aServerThatInsistsIsServed(wishes: [String]) async throws {
        let server = try ESTResponder(.basic, .init(wishes: wishes, enforcesWishes: true))
        let provider = try server.provider(["subject-alternative-names": "dns:client.example"])
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
    }

    @Test func aKeyThatCannotBeMadeIsNotReplacedInSilence() async throws {
        let server = try ESTResponder(.basic, .init(wishes: ["key:rsa:8192"]))
        let provider = try server.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unsupportedAlgorithm)
        #expect(server.issued == 0)
        // Unless the configuration says so.
        _ = try await server.provider(["key-type": "p256"]).getCertificate(NoUserInteraction())
    }
}
