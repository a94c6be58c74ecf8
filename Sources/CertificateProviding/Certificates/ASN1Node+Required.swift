import SwiftASN1

extension ASN1Node {
    /// The object identifier, or `nil` if this element is not one. NULL parameters are the usual case, and throwing an
    /// ASN1Error for them would cost more than the rest of the parsing.
    var objectIdentifier: ASN1ObjectIdentifier? {
        identifier == .objectIdentifier ? try? ASN1ObjectIdentifier(derEncoded: self) : nil
    }
}

extension ASN1NodeCollection.Iterator {
    /// Returns the next element.
    ///
    /// - Throws: `ASN1Error` naming `field` if there is none.
    mutating func required(_ field: String) throws -> ASN1Node {
        guard let node = next() else { throw ASN1Error.invalidASN1Object(reason: "\(field) is missing") }
        return node
    }
}
