package import SwiftASN1

extension ASN1NodeCollection.Iterator {
    /// Returns the next element. Throws if it is missing.
    package mutating func required(_ field: String) throws -> ASN1Node {
        guard let node = next() else { throw ASN1Error.invalidASN1Object(reason: "\(field) is missing") }
        return node
    }
}

extension ASN1Node {
    /// Returns the object identifier of an `AlgorithmIdentifier`.
    package func algorithm() throws -> ASN1ObjectIdentifier {
        try BER.sequence(self, identifier: .sequence) { nodes in
            let algorithm = try ASN1ObjectIdentifier(berEncoded: &nodes)
            while nodes.next() != nil {}
            return algorithm
        }
    }

    /// Reads the parameters of an `AlgorithmIdentifier` whose parameters are a SEQUENCE.
    package func algorithmParameters<T>(_ body: (inout ASN1NodeCollection.Iterator) throws -> T) throws -> T {
        try BER.sequence(self, identifier: .sequence) { nodes in
            _ = try nodes.required("algorithm")
            return try BER.sequence(try nodes.required("parameters"), identifier: .sequence) { nodes in
                let result = try body(&nodes)
                while nodes.next() != nil {}
                return result
            }
        }
    }
}

extension ASN1ObjectIdentifier {
    package static let pbkdf2: Self = [1, 2, 840, 113549, 1, 5, 12]
    package static let pbes2: Self = [1, 2, 840, 113549, 1, 5, 13]
    package static let scrypt: Self = [1, 3, 6, 1, 4, 1, 11591, 4, 11]
}
