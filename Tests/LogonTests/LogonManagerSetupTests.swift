import CertificateProviding
import TestSupport
import Testing

@testable import Logon

@Suite struct LogonManagerSetupTests {
    private let id = ProviderID("one")

    private func registry(parameters: [String] = [], calling name: ProviderID? = nil) throws -> ProviderRegistry {
        let actual = name ?? id
        return try ProviderRegistry([
            ProviderDescriptor(
                id: id, displayName: "", summary: "",
                parameters: (["path", "fault"] + parameters).map { Parameter.string($0, summary: "").descriptor }
            ) { _, parameters throws(ProviderError) in
                let fault = Parameter.string("fault", summary: "")
                guard !parameters.isGiven(fault) else { throw parameters.invalid(fault, "is a fault") }
                return ScriptedProvider(actual, path: parameters[Parameter.string("path", summary: "")])
            }
        ])
    }

    private func manager(
        _ configuration: LogonConfiguration, _ registry: ProviderRegistry
    ) throws -> LogonManager {
        try LogonManager(configuration: configuration, registry: registry, environment: { _ in environment() })
    }

    @Test func givesProvidersTheirParameters() throws {
        let parameters = ProviderParameters(["path": .init("x")])
        let configuration = LogonConfiguration(providers: [ConfiguredProvider(id: id, parameters: parameters)])
        let manager = try manager(configuration, try registry())
        #expect(manager.providers.map(\.id) == [id])
        #expect((manager.providers.first as? ScriptedProvider)?.path == "x")
        #expect(manager.configuration == configuration)
    }

    @Test("A provider's parameter error is passed on with the provider, file and line")
    func reportsWhatAProviderSaysOfItsParameters() throws {
        let parameters = ProviderParameters(["fault": .init("sEcReT", origin: "f:3")])
        let configuration = LogonConfiguration(providers: [ConfiguredProvider(id: id, parameters: parameters)])
        let error = failure { try manager(configuration, try registry()) }
        #expect(error?.code == .configurationInvalid)
        #expect(error?.provider == id)
        #expect(error?.message == "f:3: The parameter 'fault' is a fault.")
    }

    @Test("An error of the environment is passed on with the provider's name")
    func reportsWhatTheEnvironmentLacks() throws {
        let configuration = LogonConfiguration(providers: [ConfiguredProvider(id: id)])
        let error = failure {
            try LogonManager(configuration: configuration, registry: try registry()) {
                _ throws(ProviderError) in throw ProviderError(.storeReadFailed, "No store.")
            }
        }
        #expect(error?.code == .storeReadFailed)
        #expect(error?.provider == id)
    }

    @Test func refusesAnUnknownRepeatedOrMisnamedProvider() throws {
        let unknown = LogonConfiguration(providers: [ConfiguredProvider(id: ProviderID("other"))])
        let error = failure { try manager(unknown, try registry()) }
        #expect(error?.code == .configurationInvalid)
        #expect(error?.message == "The provider 'other' is not installed; installed: one.")
        let repeated = LogonConfiguration(providers: [ConfiguredProvider(id: id), ConfiguredProvider(id: id)])
        #expect(failure { try manager(repeated, try registry()) }?.code == .configurationInvalid)
        let misnamed = try registry(calling: ProviderID("two"))
        let configuration = LogonConfiguration(providers: [ConfiguredProvider(id: id)])
        #expect(failure { try manager(configuration, misnamed) }?.code == .internal)
    }

    @Test("Without a usable provider the manager has no identity", arguments: UserCreationPolicy.allCases)
    func hasNoIdentityWithoutAProvider(policy: UserCreationPolicy)
        async throws
    {
        // Even a provider that was put in by hand is not asked with another policy.
        var configuration = LogonConfiguration(providers: policy == .certificate ? [] : [ConfiguredProvider(id: id)])
        configuration.path = "/etc/clienthub.properties"
        configuration.userCreationPolicy = policy
        let manager = try manager(configuration, try registry())
        #expect(manager.providers.isEmpty)
        let errors = [
            await failure { try await manager.storedIdentity() },
            await failure { try await manager.identity(NoUserInteraction()) },
            await failure { try await manager.obtainIdentity(NoUserInteraction()) },
            await failure { try await manager.updateCertificate(NoUserInteraction()) },
            await failure { try await manager.deleteStoredCertificates() },
            await failure { try await manager.explain() },
        ]
        for error in errors {
            #expect(error?.code == .noCertificateProvider)
            #expect(error?.message.hasPrefix("/etc/clienthub.properties: ") == true)
        }
    }

    /// The abilities are those of the registered provider, which may wrap another one.
    @Test("A wrapper decides which abilities of the wrapped provider are visible")
    func aWrapperPassesOnWhatAProviderCanDo() async throws {
        struct Wrapper: CertificateProvider {
            let wrapped: any CertificateProvider
            var id: ProviderID { wrapped.id }
            var listing: (any IdentityListing)? { wrapped.listing }
            func getCertificate(
                _ interaction: any UserInteraction
            ) async throws(ProviderError) -> Identity { try await wrapped.getCertificate(interaction) }
            func getStoredCertificate() throws(ProviderError) -> Identity? {
                try wrapped.getStoredCertificate()
            }
            func deleteStoredCertificate() throws(ProviderError) { try wrapped.deleteStoredCertificate() }
        }
        let lister = ScriptedProvider(id)
        lister.list(IdentityList(remarks: ["listed"]))
        let registry = try ProviderRegistry([
            ProviderDescriptor(id: id, displayName: "", summary: "", parameters: []) { _, _ in Wrapper(wrapped: lister)
            }
        ])
        let manager = try manager(LogonConfiguration(providers: [ConfiguredProvider(id: id)]), registry)
        #expect(await manager.providers.first?.listing?.listIdentities().remarks == ["listed"])
        #expect(manager.providers.first?.deletions == nil && manager.providers.first?.keyStore == nil)
    }

    @Test func errorsOfAbilitiesNameTheProvider() async throws {
        let ids = [ProviderID("one"), ProviderID("two")]
        let issued = try TestAuthority().issue("client")
        let identity = try Identity(
            certificateChain: issued.certificateChain, key: issued.key, provenance: .init(provider: ids[1]))
        for error in [nil, ProviderError(.tokenNotPresent, "Gone.")] {
            let providers = ids.map { ScriptedProvider($0) }
            for provider in providers {
                let error = provider.id == ids[1] ? error : nil
                provider.announce(error.map { .failure($0) } ?? .success(["a key of \(provider.id)"]))
                provider.replacement(error.map { .failure($0) } ?? .success(()))
            }
            let registry = try ProviderRegistry(providers.map { $0.descriptor() })
            let manager = try manager(LogonConfiguration(providers: ids.map { ConfiguredProvider(id: $0) }), registry)
            if error == nil {
                #expect(try await manager.announcedDeletions() == ["a key of one", "a key of two"])
                try await manager.discardReplaced(by: identity, NoUserInteraction())
            } else {
                #expect(await failure { try await manager.announcedDeletions() }?.provider == ids[1])
                let discarding = await failure { try await manager.discardReplaced(by: identity, NoUserInteraction()) }
                #expect(discarding?.provider == ids[1])
            }
        }
    }
}
