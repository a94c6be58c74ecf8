public import CertificateProviding
package import Enrolment

/// The provider of identities that a device-management server issues, over EST (RFC 7030) or SCEP (RFC 8894): the enrolment engine
/// with a client for each.
package enum RemoteMDMProvider {
    /// The provider's identifier, `mdm`.
    package static let id = ProviderID("mdm")
    /// The entry of the provider for a ``/CertificateProviding/ProviderRegistry``.
    package static let descriptor = ProviderDescriptor(
        id: id, displayName: "Device management",
        summary: "Requests an identity from a server, over EST (RFC 7030) or SCEP (RFC 8894).",
        parameters: EnrolmentParameter.all,
        distinguishedBy: [
            EnrolmentParameter.protocol.name, EnrolmentParameter.url.name, EnrolmentParameter.subject.name,
            EnrolmentParameter.subjectAlternativeNames.name, EnrolmentParameter.caIdentifier.name,
        ]
    ) { environment, parameters throws(ProviderError) in
        try make(environment, parameters)
    }

    /// Makes a provider. Neither the server nor a token is contacted.
    ///
    /// - Throws: `unsupportedParameter` and `configurationInvalid`, which name the parameter; `unsupportedAlgorithm`
    ///   for a key that the protocol cannot use.
    package static func make(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) throws(ProviderError) -> EnrollingProvider {
        try make(environment, try descriptor.check(parameters, environment))
    }

    static func make(
        _ environment: ProviderEnvironment, _ parameters: Parameters
    ) throws(ProviderError) -> EnrollingProvider {
        do throws(ProviderError) {
            let server = try server(environment, parameters)
            return EnrollingProvider(id, server, server.settings.plan, environment)
        } catch {
            throw error.attributed(to: id)
        }
    }

    static func server(
        _ environment: ProviderEnvironment, _ parameters: Parameters
    ) throws(ProviderError) -> any MDMProtocol {
        let settings = try EnrolmentSettings(parameters)
        return switch parameters[EnrolmentParameter.protocol] {
        case .est: try ESTProtocol(settings, parameters, environment)
        case .scep: try SCEPProtocol(settings, parameters, environment)
        }
    }
}

extension ProviderDescriptor {
    /// The provider `mdm`: an identity that a server issues over EST (RFC 7030) or SCEP (RFC 8894).
    public static var mdm: ProviderDescriptor { RemoteMDMProvider.descriptor }
}
