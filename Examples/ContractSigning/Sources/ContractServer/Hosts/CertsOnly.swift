import Foundation
import SwiftASN1
import X509

/// A CMS message with certificates and nothing else (RFC 5272, section 4.1), as EST sends it.
enum CertsOnly {
    static let mediaType = "application/pkcs7-mime; smime-type=certs-only"

    static func message(_ certificates: [Certificate]) throws -> [UInt8] {
        let explicit = ASN1Identifier(tagWithNumber: 0, tagClass: .contextSpecific)
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { coder in
            try coder.serialize([1, 2, 840, 113549, 1, 7, 2] as ASN1ObjectIdentifier)
            try coder.appendConstructedNode(identifier: explicit) { coder in
                try coder.appendConstructedNode(identifier: .sequence) { coder in
                    try coder.serialize(1)
                    coder.appendConstructedNode(identifier: .set) { _ in }
                    try coder.appendConstructedNode(identifier: .sequence) { coder in
                        try coder.serialize([1, 2, 840, 113549, 1, 7, 1] as ASN1ObjectIdentifier)
                    }
                    // Implicitly tagged.
                    try coder.appendConstructedNode(identifier: explicit) { coder in
                        for certificate in certificates { try coder.serialize(certificate) }
                    }
                    coder.appendConstructedNode(identifier: .set) { _ in }
                }
            }
        }
        return serializer.serializedBytes
    }

    /// The message in base64 in lines (RFC 7030, section 4.1.3; RFC 8951).
    static func text(_ certificates: [Certificate]) throws -> String {
        let text = Data(try message(certificates)).base64EncodedString()
        var lines = ""
        var rest = text[...]
        while !rest.isEmpty {
            lines += rest.prefix(64) + "\n"
            rest = rest.dropFirst(64)
        }
        return lines
    }
}
