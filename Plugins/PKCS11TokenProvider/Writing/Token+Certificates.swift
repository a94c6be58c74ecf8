import CP11Kit
import CertificateProviding
import SwiftASN1

extension Token {
    /// Writes a chain beside its key, the leaf under the key's id and label. Certificates that are there already are
    /// not written again, and a root is not: the peer has its own.
    ///
    /// - Returns: Those that were written; `nil` when the key is not there. Leaves none of them where it fails.
    func store(
        _ chain: [X509Certificate], for key: TokenKey
    ) throws(CertificateProviderError) -> [X509Certificate]? {
        // What this call has written, over all of its attempts: the answer to one may have been lost with the token.
        var written: [X509Certificate] = []
        return try write { connection, session throws(CryptokiError) in
            guard let privateKey = try connection.key(for: key.publicKey, id: key.id, in: session)?.found else {
                return nil
            }
            let reader = TokenReader(session: session, slot: connection.slot)
            do throws(CryptokiError) {
                for (position, certificate) in chain.enumerated() {
                    let isLeaf = position == 0
                    if !isLeaf, certificate.isSelfIssued { continue }
                    guard try reader.objects(of: certificate, id: isLeaf ? key.id : nil).isEmpty else { continue }
                    let attributes =
                        isLeaf
                        ? certificate.attributes(id: key.id, label: privateKey.label)
                        : certificate.attributes(
                            id: Array(certificate.publicKey.sha256.prefix(20)), label: Array(certificate.subject.utf8))
                    if !written.contains(certificate) { written.append(certificate) }
                    _ = try session.create(attributes)
                }
                return written
            } catch {
                for certificate in written {
                    let id = certificate == chain.first ? key.id : nil
                    for object in (try? reader.objects(of: certificate, id: id)) ?? [] { try? session.destroy(object) }
                }
                throw error
            }
        }
    }

    /// Destroys certificates that ``store(_:for:)`` has written.
    ///
    /// - Parameter key: The one that the leaf was written for. A copy under another id was there before.
    func remove(_ certificates: [X509Certificate], for key: TokenKey) throws(CertificateProviderError) {
        try write { connection, session throws(CryptokiError) in
            let reader = TokenReader(session: session, slot: connection.slot)
            for certificate in certificates {
                let id = certificate.publicKey.isSameKey(as: key.publicKey) ? key.id : nil
                for object in try reader.objects(of: certificate, id: id) { try session.destroy(object) }
            }
        }
    }
}

extension TokenReader {
    /// The objects that hold a certificate.
    /// - Parameter id: Only those with this `CKA_ID`.
    func objects(of certificate: X509Certificate, id: [UInt8]? = nil) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        var attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_SUBJECT, certificate.subjectDER)]
        if let id { attributes.append(Attribute(CKA_ID, id)) }
        var found: [CK_OBJECT_HANDLE] = []
        for object in try session.objects(with: attributes)
        where try session.attribute(CKA_VALUE, of: object) == certificate.derRepresentation { found.append(object) }
        return found
    }

    /// The certificates for a key, of those that have its id.
    func certificates(
        for publicKey: PublicKeyInfo, id: [UInt8]
    ) throws(CryptokiError) -> [(handle: CK_OBJECT_HANDLE, certificate: X509Certificate)] {
        try certificates(with: [Attribute(CKA_ID, id)]).filter { $0.certificate.publicKey.isSameKey(as: publicKey) }
    }
}

extension X509Certificate {
    /// An X.509 certificate object (PKCS#11, section 4.6.3).
    fileprivate func attributes(id: [UInt8], label: [UInt8]) -> [Attribute] {
        var serial = DER.Serializer()
        serial.appendPrimitiveNode(identifier: .integer) { $0 += serialNumber }
        return [
            Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509)),
            Attribute(CKA_TOKEN, true), Attribute(CKA_PRIVATE, false), Attribute(CKA_ID, id),
            Attribute(CKA_LABEL, label), Attribute(CKA_SUBJECT, subjectDER), Attribute(CKA_ISSUER, issuerDER),
            Attribute(CKA_SERIAL_NUMBER, serial.serializedBytes), Attribute(CKA_VALUE, derRepresentation),
        ]
    }
}
