import Crypto
import Foundation
import SwiftASN1
import X509

@testable import ContractServer

enum CSR {
    /// A request in DER.
    static func make(_ commonName: String?) throws -> Data {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let subject = try commonName.map { name in try DistinguishedName { CommonName(name) } }
        let csr = try CertificateSigningRequest(
            version: .v1, subject: subject ?? DistinguishedName(), privateKey: key,
            attributes: .init(), signatureAlgorithm: .ecdsaWithSHA256)
        var serializer = DER.Serializer()
        try serializer.serialize(csr)
        return Data(serializer.serializedBytes)
    }
}
