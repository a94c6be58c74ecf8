import Terminal
import CertificateProviding
import FoundationEssentials

extension PublicKeyInfo {
    /// The name of the curve; `nil` for an unsupported curve or another algorithm.
    var namedCurve: String? { bits > 0 ? curve : nil }
}

/// One identity, as `list` and `fetch` show it.
struct IdentityDocument: Encodable {
    let provider: String
    let alias: Nullable<String>
    let stored: Bool
    let subject: String
    let issuer: String
    let serialNumber: String
    let notBefore: String
    /// The end of the leaf.
    let notAfter: String
    /// The earliest end in the chain.
    let expires: String
    /// The status of the whole chain, or `unusable`.
    let status: String
    /// The side of TLS that the identity is for.
    let usage: String
    let sha256Fingerprint: String
    let subjectAlternativeNames: [String]
    let key: Key
    let chainLength: Int

    struct Key: Encodable {
        let algorithm: String
        let parameters: Nullable<String>
        let bits: Int
        let location: String
        let exportable: Bool
        let uri: Nullable<String>

        init(_ key: PublicKeyInfo, in location: KeyLocation, isExportable: Bool, uri: String?) {
            algorithm = key.algorithm.rawValue
            parameters = Nullable(key.namedCurve)
            bits = key.bits
            self.location = location.rawValue
            exportable = isExportable
            self.uri = Nullable(uri)
        }
    }

    /// Makes the document of an identity; `nil` if the identity has no certificate.
    ///
    /// - Parameter now: The time at which `status` holds.
    init?(_ listed: ListedIdentity, now: Date) {
        guard let leaf = listed.certificateChain.first else { return nil }
        provider = listed.provider.rawValue
        alias = Nullable(listed.alias)
        stored = listed.isStored
        subject = leaf.subject
        issuer = leaf.issuer
        serialNumber = leaf.serialNumberText
        notBefore = leaf.notValidBefore.rfc3339
        notAfter = leaf.notValidAfter.rfc3339
        expires = listed.expiry.rfc3339
        status = listed.state(at: now)
        usage = listed.usage.rawValue
        sha256Fingerprint = leaf.sha256Fingerprint.hexEncoded
        subjectAlternativeNames = leaf.subjectAlternativeNames.map(\.description)
        key = Key(
            leaf.publicKey, in: listed.keyLocation, isExportable: listed.isKeyExportable, uri: listed.keyURI)
        chainLength = listed.certificateChain.count
    }
}
