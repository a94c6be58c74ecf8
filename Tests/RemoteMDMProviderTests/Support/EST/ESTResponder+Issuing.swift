import CertificateProviding
import Crypto
import CryptoExtras
import SwiftASN1
import Synchronization
import X509

extension ESTResponder {
    /// An answer with a certificate. From here on it counts as issued, whatever becomes of the answer.
    func enrol(
        _ csr: CertificateSigningRequest, _ operation: ESTOperation, _ client: ESTClientEnd, _ faults: ESTFaults,
        _ record: inout ESTRequest
    ) throws -> ESTAnswer {
        guard operation == .serverkeygen else {
            let bag = try bag(csr, csr.publicKey, client.certificate, faults, &record)
            return ESTAnswer(
                status: 200, headers: [("Content-Type", ESTAnswer.certsOnly)],
                body: ESTEncoding.body(try ESTEncoding.certsOnly(bag), faults))
        }
        guard options.makesKeys else { throw ESTRefusal(404, "Keys are not made here.") }
        let key = try faults.has(.otherKind) ? .init(Curve25519.Signing.PrivateKey()) : Self.key(like: csr.publicKey)
        let bag = try bag(csr, key.publicKey, client.certificate, faults, &record)
        return .multipart(
            key: ESTEncoding.body(try key.serializeAsPEM().derBytes, faults),
            certificates: ESTEncoding.body(try ESTEncoding.certsOnly(bag), faults))
    }

    /// The certificates of an answer, in an order that is not the chain's.
    private func bag(
        _ csr: CertificateSigningRequest, _ key: Certificate.PublicKey, _ presented: X509Certificate?,
        _ faults: ESTFaults, _ record: inout ESTRequest
    ) throws -> [X509Certificate] {
        let isNew = state.withLock(\.isRolledOver) || faults.has(.rollover)
        var issuer = isNew ? try successor() : authority
        if faults.has(.untrusted) { issuer = try Self.stranger.get() }
        var leaf = ESTAuthority.Leaf(subject: csr.subject, publicKey: key, names: try csr.alternativeNames)
        if let purposes = try csr.attributes.extensionRequest?.extensions.extendedKeyUsage {
            leaf.purposes = Array(purposes)
        }
        var leaves: [X509Certificate] = []
        if let earlier = try presented ?? latest(csr.subject), faults.has(.oldCertificate) {
            leaves = [earlier]
        } else {
            try distort(&leaf, faults)
            leaves = [try issue(leaf, by: issuer)]
            record.serial = leaves[0].serialNumberText
            if faults.has(.twoLeaves) {
                let other = try Self.key(like: csr.publicKey).publicKey
                leaves.append(
                    try issue(.init(subject: ESTAuthority.name("Somebody Else"), publicKey: other), by: issuer))
            }
        }
        if faults.has(.emptyBag) { return [] }
        return (faults.has(.noIntermediate) ? [] : issuer.intermediates) + leaves.reversed()
    }

    private func distort(_ leaf: inout ESTAuthority.Leaf, _ faults: ESTFaults) throws {
        if faults.has(.wrongSubject) { leaf.subject = try ESTAuthority.name("Somebody Else") }
        if faults.has(.noSubject) { leaf.subject = DistinguishedName() }
        if faults.has(.serverOnly) { leaf.purposes = [.serverAuth] }
        if faults.has(.otherNames) {
            leaf.subject = try leaf.subject.asPrintableStrings
            let added = GeneralName.dnsName("added.example")
            let names = leaf.names.map(Array.init) ?? []
            leaf.names = SubjectAlternativeNames(names.contains(added) ? names : names + [added])
        }
        if faults.has(.otherKey) { leaf.publicKey = try Self.key(like: leaf.publicKey).publicKey }
        if let seconds = faults[.expired] {
            let end = -(Double(seconds) ?? 60)
            leaf.validity = (end - 86_400, end)
        } else if let seconds = faults[.notYetValid] {
            let start = Double(seconds) ?? 3600
            leaf.validity = (start, start + 86_400)
        }
    }

    private func issue(_ leaf: ESTAuthority.Leaf, by issuer: ESTAuthority) throws -> X509Certificate {
        let certificate = try issuer.issue(leaf)
        state.withLock { $0.issued.append(certificate) }
        return certificate
    }

    private func latest(_ subject: DistinguishedName) throws -> X509Certificate? {
        var serializer = DER.Serializer()
        try serializer.serialize(subject)
        let name = serializer.serializedBytes
        return state.withLock { $0.issued.last { $0.subjectDER == name } }
    }

    /// A new key of the same kind.
    private static func key(like key: Certificate.PublicKey) throws -> Certificate.PrivateKey {
        if P384.Signing.PublicKey(key) != nil { return .init(P384.Signing.PrivateKey()) }
        if P521.Signing.PublicKey(key) != nil { return .init(P521.Signing.PrivateKey()) }
        if Curve25519.Signing.PublicKey(key) != nil { return .init(Curve25519.Signing.PrivateKey()) }
        if _RSA.Signing.PublicKey(key) != nil { return .init(try _RSA.Signing.PrivateKey(keySize: .bits2048)) }
        return .init(P256.Signing.PrivateKey())
    }
}

extension DistinguishedName {
    /// The same name in strings of another type.
    fileprivate var asPrintableStrings: DistinguishedName {
        get throws {
            DistinguishedName(
                try map { relativeName in
                    RelativeDistinguishedName(
                        try relativeName.map { attribute in
                            try .init(type: attribute.type, printableString: String(attribute.value) ?? "")
                        })
                })
        }
    }
}
