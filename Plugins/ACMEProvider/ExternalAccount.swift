import CertificateProviding
import Crypto
import FoundationEssentials
import Logging

/// The account that the CA knows this host by already, for those that want one (RFC 8555, section 7.3.4).
struct ExternalAccount {
    let client: ACMEClient
    let interaction: any UserInteraction
    private var settings: ACMESettings { client.settings }

    /// The next step where the server refuses it.
    var advice: String? {
        settings.eabKeyID == nil ? nil : "check 'eab-kid', 'eab-key-source' and 'eab-algorithm'"
    }

    /// Binds an account's key to it.
    ///
    /// - Throws: `configurationInvalid` if none is configured, and errors of its key's source.
    func binding(
        of signer: RequestSigner, to directory: ACMEDirectory
    ) async throws(ProviderError) -> RequestSigner.Flattened {
        guard let id = settings.eabKeyID else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) wants an external account; set 'eab-kid' and 'eab-key-source' to those that the CA gave you."
            )
        }
        return try signer.externalBinding(
            id, try await key(), settings.eabAlgorithm, to: directory.newAccount)
    }

    private func key() async throws(ProviderError) -> SymmetricKey {
        guard let source = settings.eabKeySource else {
            throw ProviderError(.internal, "There is no source for the external account's key.")
        }
        let secret = try await client.environment.secret(
            from: source, prompt: "Key of the external account at \(client.serverName)", interaction: interaction)
        var text = String(secret.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.trimming)
        guard !text.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "The secret of 'eab-key-source' is empty; write the key into it, as the CA shows it.")
        }
        text = text.replacing("-", with: "+").replacing("_", with: "/").replacing("=", with: "")
        text += String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        guard let key = Data(base64Encoded: text), !key.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "The secret of 'eab-key-source' is not base64url (RFC 4648, section 5); use the key as the CA shows it."
            )
        }
        if key.count < 32 {
            client.environment.logger.warning(
                "the key of the external account has \(key.count * 8) bits; ask the CA for one of 256 bits or more")
        }
        return SymmetricKey(data: key)
    }
}
