import Crypto
import Foundation
import SwiftASN1
import X509

@testable import ContractServer

enum CSR {
    /// A request in DER.
    static func make(_ commonName: String?, names: [GeneralName] = []) throws -> Data {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let subject = try commonName.map { name in try DistinguishedName { CommonName(name) } }
        let wishes = try Certificate.Extensions { SubjectAlternativeNames(names) }
        let attributes =
            names.isEmpty ? [] : [try CertificateSigningRequest.Attribute(ExtensionRequest(extensions: wishes))]
        let csr = try CertificateSigningRequest(
            version: .v1, subject: subject ?? DistinguishedName(), privateKey: key,
            attributes: .init(attributes), signatureAlgorithm: .ecdsaWithSHA256)
        var serializer = DER.Serializer()
        try serializer.serialize(csr)
        return Data(serializer.serializedBytes)
    }
}
