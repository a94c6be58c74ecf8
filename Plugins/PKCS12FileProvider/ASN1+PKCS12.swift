import OpenSSLSupport
import SwiftASN1

extension ASN1NodeCollection.Iterator {
    /// Returns the octets of the next element, `[0] EXPLICIT OCTET STRING`.
    mutating func explicitOctetString(_ field: String) throws -> [UInt8] {
        let node = try required(field)
        return Array(try ASN1OctetString(berEncoded: node.explicitContent(tagNumber: 0)).bytes)
    }
}

extension ASN1Node {
    /// Returns the one element inside this one, `[tagNumber] EXPLICIT`.
    func explicitContent(tagNumber: UInt) throws -> ASN1Node {
        guard identifier == ASN1Identifier(tagWithNumber: tagNumber, tagClass: .contextSpecific),
            case .constructed(let children) = content
        else { throw ASN1Error.unexpectedFieldType(identifier) }
        var iterator = children.makeIterator()
        return try iterator.required("[\(tagNumber)]")
    }
}

extension ASN1ObjectIdentifier {
    static let pkcs7Data: Self = [1, 2, 840, 113549, 1, 7, 1]
    static let pkcs7SignedData: Self = [1, 2, 840, 113549, 1, 7, 2]
    static let pkcs7EnvelopedData: Self = [1, 2, 840, 113549, 1, 7, 3]
    static let pkcs7EncryptedData: Self = [1, 2, 840, 113549, 1, 7, 6]

    static let pbmac1: Self = [1, 2, 840, 113549, 1, 5, 14]
    static let hmacWithSHA1: Self = [1, 2, 840, 113549, 2, 7]

    static let keyBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 1]
    static let shroudedKeyBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 2]
    static let certificateBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 3]
    static let safeContentsBag: Self = [1, 2, 840, 113549, 1, 12, 10, 1, 6]
    static let x509Certificate: Self = [1, 2, 840, 113549, 1, 9, 22, 1]

    static let friendlyName: Self = [1, 2, 840, 113549, 1, 9, 20]
    static let localKeyID: Self = [1, 2, 840, 113549, 1, 9, 21]
}
