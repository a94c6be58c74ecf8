import SwiftASN1

extension ASN1NodeCollection.Iterator {
    /// Returns the next element, which the structure demands.
    mutating func required(_ field: String) throws -> ASN1Node {
        guard let node = next() else { throw ASN1Error.invalidASN1Object(reason: "\(field) is missing") }
        return node
    }
}
