package import CertificateProviding
package import OAuth
import CertificateTLS
import ProviderTransport

extension RemoteMDMProvider {
    /// Requests an access token by the OAuth settings of a provider. Enrols nothing.
    ///
    /// A secret that the token endpoint has rejected, for the provider or here, is not sent again from its source.
    ///
    /// - Parameters:
    ///   - environment: That of the provider.
    ///   - parameters: Those of the provider, with `token-url` and `client-id`.
    ///   - interaction: Asks for a secret whose source is `prompt`.
    /// - Throws: `unsupportedParameter` and `configurationInvalid`, which name the parameter; as ``/OAuth/AccessTokenSource/token()``.
    package static func accessToken(
        environment: ProviderEnvironment, parameters: ProviderParameters, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> AccessToken {
        do throws(ProviderError) {
            let server = try server(environment, try descriptor.check(parameters, environment))
            guard let oauth = server.settings.oauth else {
                throw ProviderError(
                    .configurationInvalid,
                    "No OAuth settings are configured; set '\(EnrolmentParameter.tokenURL.name)' and "
                        + "'\(EnrolmentParameter.clientID.name)'.")
            }
            let run = try await server.run(interaction)
            do throws(ProviderError) {
                let trust = try await run.tokenTrust(oauth, server)
                guard let tokens = try await run.tokens(oauth, trust, isRenewal: false) else {
                    throw ProviderError(.internal, "No secret was read for the token endpoint.")
                }
                let token = try await tokens.token()
                await run.noteOutcome(nil)
                return token
            } catch {
                await run.noteOutcome(error)
                throw error
            }
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension ServerRun {
    /// The trust in the enrolment server, for a token endpoint on it.
    fileprivate func tokenTrust(
        _ oauth: OAuthSettings, _ server: any MDMProtocol
    ) async throws(ProviderError) -> ServerTrust {
        guard oauth.isOnSameServer, server is ESTProtocol else { return try await connectionTrust() }
        return try await ESTTrust(self).serverTrust(presenting: nil)
    }
}
