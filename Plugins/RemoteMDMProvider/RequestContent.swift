import CertificateProviding
import SwiftASN1
import X509

/// What a request for a certificate says.
struct RequestContent: Sendable {
    let names: CertificateRequest.Names
    /// What the server wants to see in it.
    var wishes = CSRAttributes()

    /// - Parameter attributes: What else it says: a challenge password.
    /// - Returns: DER.
    func signed(
        with key: any IdentityKey, attributes: [CertificateSigningRequest.Attribute] = []
    ) async throws(CertificateProviderError) -> [UInt8] {
        let extensions = wishes.extensions.compactMap { Self.filled($0, names, for: key.publicKey) }
        return try await CertificateRequest(
            names, attributes: attributes, extensions: extensions, preferring: wishes.schemes, key: key
        ).derRepresentation
    }

    /// The extension as the request has it; `nil` for one that there is nothing to say for.
    ///
    /// What the server gives a whole value for is asked for with that; a template, or the mere name of an extension, is
    /// filled in here (RFC 9908).
    private static func filled(
        _ wish: CSRAttributes.ExtensionWish, _ names: CertificateRequest.Names, for key: PublicKeyInfo
    ) -> Certificate.Extension? {
        let given = wish.value.map {
            Certificate.Extension(oid: wish.type, critical: wish.isCritical, value: $0[...])
        }
        switch wish.type {
        case .X509ExtensionID.subjectAlternativeName:
            // Who it is for is said here, where it is said at all.
            guard names.alternativeNames.isEmpty, let given, let wanted = try? SubjectAlternativeNames(given),
                !wanted.isEmpty, wanted.allSatisfy(\.isWhole)
            else { return nil }
            return given
        case .X509ExtensionID.keyUsage:
            if let given, let usage = try? KeyUsage(given), usage != KeyUsage() { return given }
            let usage = KeyUsage(digitalSignature: true, keyEncipherment: key.algorithm == .rsa)
            return try? Certificate.Extension(usage, critical: true)
        case .X509ExtensionID.extendedKeyUsage:
            if let given, let purposes = try? ExtendedKeyUsage(given), !purposes.isEmpty { return given }
            return try? Certificate.Extension(ExtendedKeyUsage([.clientAuth]), critical: false)
        default: return given
        }
    }
}

extension GeneralName {
    /// Whether there is anything in it: templates have empty names.
    fileprivate var isWhole: Bool {
        switch self {
        case .dnsName(let text), .rfc822Name(let text), .uniformResourceIdentifier(let text): !text.isEmpty
        case .ipAddress(let octets): !octets.bytes.isEmpty
        default: true
        }
    }
}
