import CertificateProviding
import SwiftASN1
import X509

/// The content of a certificate request.
struct RequestContent: Sendable {
    let names: CertificateRequest.Names
    var usage = IdentityUsage.client
    /// The CSR attributes that the server wants.
    var wishes = CSRAttributes()

    /// Returns the request, signed with `key`.
    ///
    /// - Parameter attributes: Further attributes, such as a challenge password.
    func signed(
        with key: any IdentityKey, attributes: [CertificateSigningRequest.Attribute] = []
    ) async throws(ProviderError) -> CertificateRequest {
        let extensions = wishes.extensions.compactMap { filled($0, for: key.publicKey) }
        return try await CertificateRequest(
            names, usage: usage, attributes: attributes, extensions: extensions, preferring: wishes.schemes, key: key)
    }

    /// Returns the extension for the request; `nil` if there is no value for it.
    ///
    /// A complete value of the server is used as it is. A template, or the mere name of an extension, is filled in here
    /// (RFC 9908).
    private func filled(
        _ wish: CSRAttributes.ExtensionWish, for key: PublicKeyInfo
    ) -> Certificate.Extension? {
        let given = wish.value.map {
            Certificate.Extension(oid: wish.type, critical: wish.isCritical, value: $0[...])
        }
        switch wish.type {
        case .X509ExtensionID.subjectAlternativeName:
            // Configured names take precedence over those of the server.
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
            guard !usage.purposes.isEmpty else { return nil }
            return try? Certificate.Extension(ExtendedKeyUsage(usage.purposes), critical: false)
        default: return given
        }
    }
}

extension GeneralName {
    /// Whether the name is not empty. Templates contain empty names.
    fileprivate var isWhole: Bool {
        switch self {
        case .dnsName(let text), .rfc822Name(let text), .uniformResourceIdentifier(let text): !text.isEmpty
        case .ipAddress(let octets): !octets.bytes.isEmpty
        default: true
        }
    }
}
