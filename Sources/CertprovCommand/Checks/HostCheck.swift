import CertificateProviding
import FoundationEssentials
import LogonCore

/// One thing that was looked at.
struct Finding: Sendable {
    enum Severity: String, Sendable {
        case ok
        /// Worth knowing; nothing is broken.
        case warning
        /// Needs a person.
        case error
    }

    var severity: Severity
    var what: String
    var detail: String
    var code: CertificateProviderError.Code = .configurationInvalid

    static func ok(_ what: String, _ detail: String) -> Finding { Finding(severity: .ok, what: what, detail: detail) }

    static func warning(_ what: String, _ detail: String) -> Finding {
        Finding(severity: .warning, what: what, detail: detail)
    }

    static func error(_ what: String, _ error: CertificateProviderError) -> Finding {
        Finding(severity: .error, what: what, detail: error.message, code: error.code)
    }
}

/// Goes through what can be wrong, from the property file to the server's port. Changes nothing and prompts nobody.
struct HostCheck {
    /// A certificate that ends sooner than this needs a person, if nothing renews it.
    private static let renewalNotice: TimeInterval = 14 * 86400
    private let context: CommandContext

    init(_ context: CommandContext) { self.context = context }

    func run() async -> [Finding] {
        let configuration: LogonConfiguration
        let manager: LogonManager
        do throws(CertificateProviderError) {
            configuration = try context.configurationWithoutRemarks()
            manager = try context.manager(configuration)
        } catch {
            return [.error("configuration", error)]
        }
        let origin = configuration.path?.withVisibleControls ?? "from the command line"
        var findings = [Finding.ok("configuration", origin)]
        findings += configuration.warnings.map { .warning("configuration", $0) }
        do throws(CertificateProviderError) { try manager.requireProviders() } catch {
            findings.append(.error("configuration", error))
        }
        for configured in configuration.providers { findings += FileModeCheck(context, configured).run() }
        for provider in manager.providers { findings += await check(provider) }
        if let host = configuration.host, let port = configuration.port {
            findings.append(PortCheck(host: host, port: port).run())
        }
        return findings
    }

    private func check(_ provider: any CertificateProvider) async -> [Finding] {
        guard let listing = provider as? any IdentityListing else {
            do throws(CertificateProviderError) {
                guard let identity = try provider.getStoredCertificate() else {
                    return [.warning("\(provider.id)", "No identity is stored.")]
                }
                return [expiry(ListedIdentity(identity, isStored: true), "\(provider.id)")]
            } catch {
                return [.error("\(provider.id)", error)]
            }
        }
        let list = await listing.listIdentities()
        return list.identities.map { expiry($0, "\(provider.id) \($0.isStored ? "stored" : "available")") }
            + list.failures.map { .error("\(provider.id)", $0) }
            + list.remarks.map { .warning("\(provider.id)", $0) }
    }

    private func expiry(_ identity: ListedIdentity, _ what: String) -> Finding {
        guard let leaf = identity.certificateChain.first else { return .warning(what, "There is no certificate.") }
        let now = Date()
        let text = "\(leaf.subject): \(leaf.status(at: now).rawValue), until \(leaf.notValidAfter.rfc3339)"
        do throws(CertificateProviderError) {
            try Identity.checkStrength(of: leaf.publicKey, subject: leaf.subject, provider: identity.provider)
        } catch {
            return .error(what, error)
        }
        switch leaf.status(at: now) {
        case .expired:
            return .error(
                what,
                CertificateProviderError(.notFound, text + ". Obtain a new certificate, then: certprov fetch --force"))
        case .notYetValid:
            return .error(what, CertificateProviderError(.notFound, text + ". Is this host's clock right?"))
        case .valid:
            let isClose = leaf.notValidAfter < now.addingTimeInterval(Self.renewalNotice)
            return isClose ? .warning(what, text + ". It ends soon.") : .ok(what, text)
        }
    }
}
