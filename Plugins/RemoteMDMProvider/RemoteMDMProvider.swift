public import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging
import RemoteMDMParameters
import Synchronization

/// An identity that a device-management server issues.
///
/// ``getCertificate(_:)`` makes a key, asks the server for a certificate, verifies what comes back and seals both into the
/// identity store. Where there is an identity already, it is renewed with a new key, and stays until the new one has
/// worked.
public final class RemoteMDMProvider: CertificateProvider {
    public static let id = RemoteMDMParameters.id
    public static let descriptor = RemoteMDMParameters.descriptor { RemoteMDMProvider(environment: $0) }
    public var id: ProviderID { Self.id }

    let environment: ProviderEnvironment
    private let state = Mutex<Settings?>(nil)

    public init(environment: ProviderEnvironment) { self.environment = environment }

    public func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) {
        try parameters.refuseUnknown(knowing: RemoteMDMParameters.documented, provider: id)
        let settings = try Settings(parameters, provider: id)
        state.withLock { $0 = settings }
    }

    /// Enrols, or resumes an enrolment that was begun, with the same key. Suspends for at most `timeout`.
    ///
    /// - Throws: `pending` where the server has not decided: ask again later. `rejected` where it refuses, `unavailable`
    ///   where it does not answer, `protocolError` where what it answers must not be used, `operationNotAllowed` while
    ///   another process is enrolling.
    public func getCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        do throws(CertificateProviderError) {
            let settings = try settings()
            return try await Enrolment(settings, environment, interaction).run()
        } catch {
            throw error.attributed(to: id)
        }
    }

    public func getStoredCertificate() throws(CertificateProviderError) -> Identity? {
        do throws(CertificateProviderError) {
            let name = try settings().entryName
            return try environment.storage.entry(named: name).map(Self.identity)
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Forgets certificate and key, and a request that is pending. Revokes nothing: the server is not told.
    public func deleteStoredCertificate() throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let settings = try settings()
            try environment.storage.updateRecord(named: settings.recordName) { _ in SecretBytes(copying: []) }
            try environment.storage.removeEntry(named: settings.entryName)
        } catch {
            throw error.attributed(to: id)
        }
    }

    func settings() throws(CertificateProviderError) -> Settings {
        guard let settings = state.withLock({ $0 }) else {
            throw CertificateProviderError(
                .configurationInvalid, "The provider '\(id)' has no parameters yet; set 'protocol' and 'url'.",
                provider: id)
        }
        return settings
    }

    static func identity(_ entry: StoredIdentity) throws(CertificateProviderError) -> Identity {
        guard let privateKey = entry.privateKey else {
            throw CertificateProviderError(
                .storeReadFailed, "The stored identity has no key; delete it and fetch it anew.", provider: id)
        }
        return try Identity(
            certificateChain: entry.certificateChain, key: try SoftwareKey(pkcs8: privateKey, location: .store),
            provenance: .init(provider: id, source: entry.attributes["server"]))
    }
}

extension Settings {
    var recordName: String { "enrolment-\(entryName)" }
}
