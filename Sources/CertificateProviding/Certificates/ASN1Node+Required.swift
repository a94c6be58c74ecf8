import SwiftASN1

extension ASN1Node {
    /// The object identifier that this element is, if it is one. NULL parameters are the usual case, and throwing an
    /// ASN1Error at them would cost more than the rest of the parsing.
    var objectIdentifier: ASN1ObjectIdentifier? {
        identifier == .objectIdentifier ? try? ASN1ObjectIdentifier(derEncoded: self) : nil
    }
}

extension ASN1NodeCollection.Iterator {
    /// Returns the next element, which the structure demands.
    mutating func required(_ field: String) throws -> ASN1Node {
        guard let node = next() else { throw ASN1Error.invalidASN1Object(reason: "\(field) is missing") }
        return node
    }
}
