import CertificateProviding
import SwiftASN1

/// The key that the keys of a TPM are beneath.
enum TPMParent: Hashable, Sendable {
    /// The storage key that is derived from the owner's seed by the template of ``TPMPublicArea/storageKey``.
    case owner
    /// A key at a handle from 0x81000000.
    case persistent(UInt32)

    /// Returns `nil` for another handle.
    init?(handle: UInt32) {
        switch handle {
        case 0x4000_0001: self = .owner
        case 0x8100_0000...0x81ff_ffff: self = .persistent(handle)
        default: return nil
        }
    }

    var handle: UInt32 {
        switch self {
        case .owner: 0x4000_0001
        case .persistent(let handle): handle
        }
    }
}

/// A private key as it rests outside of its TPM, which alone can use it: `TSS2 PRIVATE KEY`, ASN.1 Specification for TPM 2.0 Key Files.
///
///     SEQUENCE { OID, [0] emptyAuth, parent INTEGER, TPM2B_PUBLIC OCTET STRING, TPM2B_PRIVATE OCTET STRING }
struct TPMKeyBlob: Sendable {
    static let label = "TSS2 PRIVATE KEY"
    private static let loadableKey: ASN1ObjectIdentifier = [2, 23, 133, 10, 1, 3]

    let parent: TPMParent
    let publicArea: TPMPublicArea
    /// `TPM2B_PRIVATE`.
    let privatePart: [UInt8]
    let derRepresentation: [UInt8]

    init(parent: TPMParent, publicArea: TPMPublicArea, privatePart: [UInt8]) throws(ProviderError) {
        (self.parent, self.publicArea, self.privatePart) = (parent, publicArea, privatePart)
        do {
            var serializer = DER.Serializer()
            try serializer.appendConstructedNode(identifier: .sequence) { coder in
                try coder.serialize(Self.loadableKey)
                try coder.serialize(true, explicitlyTaggedWithTagNumber: 0, tagClass: .contextSpecific)
                try coder.serialize(Int64(parent.handle))
                try coder.serialize(ASN1OctetString(contentBytes: publicArea.bytes[...]))
                try coder.serialize(ASN1OctetString(contentBytes: privatePart[...]))
            }
            derRepresentation = serializer.serializedBytes
        } catch {
            throw ProviderError(.internal, "The TPM key cannot be encoded.", underlying: error)
        }
    }

    /// Reads the DER form.
    ///
    /// - Throws: `malformedData`; `unsupportedAlgorithm` for a key with a policy, with an authorisation, or beneath another parent than
    ///   the storage key of the owner or a persistent one.
    init(derRepresentation der: [UInt8]) throws(ProviderError) {
        do {
            // Not every writer's TRUE is DER.
            self = try BER.sequence(try BER.parse(der), identifier: .sequence) { nodes in try Self(&nodes, der) }
        } catch let error as ProviderError { throw error } catch {
            throw ProviderError(
                .malformedData, "The TPM key is damaged or cut off; replace it.", underlying: error)
        }
    }

    private init(_ nodes: inout ASN1NodeCollection.Iterator, _ der: [UInt8]) throws {
        guard try ASN1ObjectIdentifier(berEncoded: &nodes) == Self.loadableKey else {
            throw Self.refused("is not one to load: its object identifier is not 2.23.133.10.1.3; export it again")
        }
        var isOpen = false
        var integer: ASN1Node?
        while let node = nodes.next() {
            guard node.identifier.tagClass == .contextSpecific else {
                integer = node
                break
            }
            switch node.identifier.tagNumber {
            case 0: isOpen = try Self.flag(node)
            case 1, 3: throw Self.refused("asks for a policy; make one without")
            case 2: throw Self.refused("is sealed for import ([2] secret); make the key in this TPM")
            case 5 where try Self.flag(node):
                throw Self.refused("is beneath an RSA parent; make one beneath the P-256 storage key")
            // A description says nothing that counts.
            default: break
            }
        }
        guard isOpen else {
            throw Self.refused("has a password (emptyAuth is not TRUE); make one without")
        }
        guard let integer, case let number = try Int64(berEncoded: integer),
            let parent = UInt32(exactly: number).flatMap(TPMParent.init(handle:))
        else {
            throw Self.refused(
                "has another parent than the storage key of the owner (0x40000001) or a persistent key (0x81…)")
        }
        self.parent = parent
        publicArea = TPMPublicArea(bytes: Array(try ASN1OctetString(berEncoded: &nodes).bytes))
        privatePart = Array(try ASN1OctetString(berEncoded: &nodes).bytes)
        derRepresentation = der
    }

    private static func flag(_ node: ASN1Node) throws -> Bool {
        guard case .constructed(let inner) = node.content, let value = inner.first(where: { _ in true }),
            case .primitive(let bytes) = value.content
        else { throw ASN1Error.invalidASN1Object(reason: "a flag") }
        return bytes.contains { $0 != 0 }
    }

    private static func refused(_ reason: String) -> ProviderError {
        ProviderError(.unsupportedAlgorithm, "The TPM key \(reason).")
    }
}
