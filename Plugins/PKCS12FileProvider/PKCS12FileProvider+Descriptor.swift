public import CertificateProviding

extension PKCS12FileProvider {
    enum Parameter {
        static let path = CertificateProviding.Parameter<String>(
            "path", .secretPath, absent: nil,
            summary: "The PKCS#12 file, or a directory whose .p12 and .pfx files are read."
        ) { text, _ throws(ParameterProblem) in
            guard !text.utf8.contains(0) else { throw .expected("contains a NUL character, which a path cannot have") }
            return text
        }
        static let passwordSource = CertificateProviding.Parameter.secretSource(
            "password-source", defaultValue: "no password", summary: "The secret source of the file's password.")
        static let alias = CertificateProviding.Parameter.string(
            "alias", defaultValue: "the only identity",
            summary: "Which identity to use: its friendly name, or the SHA-256 fingerprint of its certificate in hex.")
    }

    /// The provider's entry for a ``/CertificateProviding/ProviderRegistry``.
    package static let descriptor = ProviderDescriptor(
        id: id, displayName: "PKCS#12 file",
        summary: "Reads the identity from a PKCS#12 file and stores a sealed copy in the identity store.",
        parameters: [
            Parameter.path.descriptor, Parameter.passwordSource.descriptor, Parameter.alias.descriptor,
            IdentityUsage.parameter.descriptor,
        ], distinguishedBy: [Parameter.path.name, Parameter.alias.name]
    ) { environment, parameters throws(ProviderError) in
        PKCS12FileProvider(environment, parameters)
    }
}

extension ProviderDescriptor {
    /// The provider `pkcs12`: an identity from a PKCS#12 file (RFC 7292), or from a directory of such files.
    public static var pkcs12: ProviderDescriptor { PKCS12FileProvider.descriptor }
}
