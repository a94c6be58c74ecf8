public import CertificateProviding
import Enrolment
import Logging
import ProviderTransport

/// The provider of identities that a CA issues over ACME (RFC 8555): the enrolment engine with a client for it. The key is in any key
/// store.
package enum ACMEProvider {
    /// The provider's identifier, `acme`.
    package static let id = ProviderID("acme")
    /// The name of the parameter with the URL of the server's directory.
    package static let directory = ACMEParameter.directory.name
    /// The entry of the provider for a ``/CertificateProviding/ProviderRegistry``.
    package static let descriptor = ProviderDescriptor(
        id: id, displayName: "ACME", summary: "Requests an identity from a CA, over ACME (RFC 8555).",
        parameters: ACMEParameter.all,
        distinguishedBy: [
            ACMEParameter.directory.name, ACMEParameter.identifiers.name, ACMEParameter.subject.name,
            ACMEParameter.profile.name,
        ]
    ) { environment, parameters throws(ProviderError) in
        let settings = try ACMESettings(parameters)
        for name in settings.identifiers where name.isInFormerForm {
            environment.logger.warning(
                "'identifiers' has a form that will go; write the serial number first",
                metadata: ["identifier": "\(name)"])
        }
        return EnrollingProvider(id, ACMEProtocol(settings, environment), settings.plan, environment)
    }

    /// Returns what a challenge needs of this host: the port that is opened while the server looks, with the process that has it now, the
    /// document root, or the program. Opens no port, and runs nothing. Blocks on `/proc`.
    ///
    /// - Throws: `unsupportedParameter`, `configurationInvalid`.
    package static func hostNeeds(
        _ texts: ProviderParameters, _ environment: ProviderEnvironment
    ) throws(ProviderError) -> (
        port: (number: Int, parameter: String, holder: String?)?, documentRoot: String?, hook: String?
    ) {
        let settings = try ACMESettings(try descriptor.check(texts, environment))
        func port(_ address: ListenAddress, _ parameter: String) -> (number: Int, parameter: String, holder: String?) {
            (address.port, parameter, PortHolder.name(ofPort: address.port))
        }
        return switch settings.challenge {
        case .http where settings.httpRoot != nil: (nil, settings.httpRoot, nil)
        case .http: (port(settings.httpListen, ACMEParameter.httpListen.descriptor.name), nil, nil)
        case .tlsALPN: (port(settings.tlsListen, ACMEParameter.tlsListen.descriptor.name), nil, nil)
        case .dns: (nil, nil, settings.dnsHook)
        case .deviceAttest, .none: (nil, nil, nil)
        }
    }
}

/// ACME, for the enrolment engine.
struct ACMEProtocol: EnrolmentProtocol {
    let settings: ACMESettings
    let environment: ProviderEnvironment

    init(_ settings: ACMESettings, _ environment: ProviderEnvironment) {
        (self.settings, self.environment) = (settings, environment)
    }

    var serverName: String { settings.directory.authority }
    var source: String { settings.directory.origin + settings.directory.target }
    var revokes: Bool { true }
    var givesRenewalAdvice: Bool { true }
    var trustsAttestation: Bool { settings.challenge == .deviceAttest }

    func session(_ interaction: any UserInteraction) async throws(ProviderError) -> any EnrolmentSession {
        ACMESession(try await ACMEClient(settings, environment, interaction), interaction)
    }

    func renewalInformation(
        for identity: Identity
    ) async throws(ProviderError) -> RenewalInformation? {
        // A proxy's password is not asked for here.
        let client = try await ACMEClient(
            settings, environment, NoUserInteraction(), timeout: ACMEClient.timeForRenewalInformation)
        do throws(ProviderError) {
            let information = try await client.renewalInformation(on: identity.certificate)
            await client.noteOutcome(nil)
            return information
        } catch {
            await client.noteOutcome(error)
            throw error
        }
    }

    func forget() throws(ProviderError) { try ChallengeJournal(settings, environment).cleanUp() }
}

extension ProviderDescriptor {
    /// The provider `acme`: an identity that a CA issues over ACME (RFC 8555). The key is in any key store.
    public static var acme: ProviderDescriptor { ACMEProvider.descriptor }
}
