public import CertificateProviding

extension PKCS12FileProvider {
    enum Parameter {
        static let path = "path"
        static let passwordSource = "password-source"
        static let alias = "alias"
    }

    static let parameters = [
        ParameterDescriptor(
            Parameter.path, .path, isRequired: true,
            summary: "The PKCS#12 file, or a directory whose .p12 and .pfx files are read."),
        ParameterDescriptor(
            Parameter.passwordSource, .secretSource, defaultValue: "no password",
            summary: "The secret source of the file's password."),
        ParameterDescriptor(
            Parameter.alias, .string, defaultValue: "the only identity",
            summary: "Which identity to use: its friendly name, or the SHA-256 fingerprint of its certificate in hex."),
    ]

    /// What to put into a ``ProviderRegistry``.
    public static let descriptor = ProviderDescriptor(
        id: id, displayName: "PKCS#12 file",
        summary: "Reads the identity from a PKCS#12 file and stores a sealed copy in the identity store.",
        parameters: parameters, makeProvider: { PKCS12FileProvider(environment: $0) })
}
