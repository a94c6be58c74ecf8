public import CertificateProviding

extension PEMFileProvider {
    enum Parameter {
        static let certificate = CertificateProviding.Parameter<String>(
            "certificate", .secretPath, absent: nil,
            summary:
                "PEM file with the certificate and its chain, in any order; or a directory as Kubernetes, certbot, lego, uacme "
                + "or dehydrated writes it."
        ) { text, _ throws(ParameterProblem) in try path(text) }
        static let key = CertificateProviding.Parameter<PEMSource.KeyPlace?>(
            "key", .string, defaultValue: "the same file, or the directory's",
            summary:
                "PEM file of the private key, or the URI of a key in a key store, such as pkcs11:token=hsm;object=web."
        ) { text, context throws(ParameterProblem) in
            guard !text.hasPrefix("file:"), KeyStoreLocation(uri: text, pinSource: nil) != nil else {
                return .file(try path(text))
            }
            let pinSource = context.text(keyPINSource.name).flatMap { SecretSource($0) }
            do throws(ProviderError) {
                return .keyStore(text, try context.keyStores.store(text, pinSource: pinSource, parameter: "key"))
            } catch {
                throw .error(error)
            }
        }
        static let keyPasswordSource = CertificateProviding.Parameter.secretSource(
            "key-password-source", defaultValue: "no password",
            summary: "The secret source of the password of an encrypted key.")
        static let keyPINSource = CertificateProviding.Parameter.secretSource(
            "key-pin-source", defaultValue: "the URI's pin-source, else the user is asked", needs: [.given("key")],
            summary: "The source of the PIN of the key store; a service needs it.")
        static let trustBundle = CertificateProviding.Parameter<String?>(
            "trust-bundle", .certificateFile, defaultValue: "the directory's ca.crt, or the root in its chain.pem",
            summary: "PEM file with the CA certificates that come with this identity."
        ) { text, _ throws(ParameterProblem) in try path(text) }

        private static func path(_ text: String) throws(ParameterProblem) -> String {
            guard !text.utf8.contains(0) else { throw .expected("contains a NUL character, which a path cannot have") }
            guard !text.hasPrefix("file:") else { throw .expected("must be a path, without 'file:'") }
            return RegularFile.absolute(text)
        }
    }

    /// The provider's entry for a ``/CertificateProviding/ProviderRegistry``.
    package static let descriptor = ProviderDescriptor(
        id: id, displayName: "PEM files",
        summary:
            "Uses the certificate and the private key of PEM files, which another program replaces, or a key in a key store.",
        parameters: [
            Parameter.certificate.descriptor, Parameter.key.descriptor, Parameter.keyPasswordSource.descriptor,
            Parameter.keyPINSource.descriptor, Parameter.trustBundle.descriptor, IdentityUsage.parameter.descriptor,
        ], distinguishedBy: [Parameter.certificate.name, Parameter.key.name]
    ) { environment, parameters throws(ProviderError) in
        try PEMFileProvider(environment, parameters)
    }
}

extension ProviderDescriptor {
    /// The provider `pem`: an identity in PEM files (RFC 7468), which another program replaces.
    public static var pem: ProviderDescriptor { PEMFileProvider.descriptor }
}
