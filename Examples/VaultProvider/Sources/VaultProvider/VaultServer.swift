import CertificateProviding
import Enrolment
import ProviderTransport

/// A run with a Vault or OpenBao server, over one connection.
struct VaultServer: EnrolmentSession {
    private let settings: VaultSettings
    private let session: ServerSession
    private let environment: ProviderEnvironment
    private let proxies: ProxyChoice

    /// Reads the token, and the files of trust anchors and pins. Nothing is sent yet.
    init(
        _ settings: VaultSettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let server = settings.server
        let token = try await environment.secret(
            from: settings.tokenSource, prompt: "Vault token for \(server.authority)", interaction: interaction)
        proxies = try await settings.proxy.choice(environment, interaction)
        let trust = try await environment.executor.run { () throws(ProviderError) in
            try settings.trust.serverTrust()
        }
        session = ServerSession(
            server, ServerSecurity(trust: trust, now: environment.now, executor: environment.executor),
            try .bearer(token, from: VaultParameter.tokenSource.name), through: try proxies.proxy(for: server),
            timeBudget: TimeBudget(settings.plan.timeout, environment.transport.retryPolicy),
            transport: environment.transport)
        self.settings = settings
        self.environment = environment
    }

    /// Connects, and verifies the server. The token is not sent yet.
    func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms {
        try await session.connect()
        return EnrolmentTerms()
    }

    /// A password that the proxy has rejected is not sent again by itself.
    func noteOutcome(_ error: ProviderError?) async {
        await settings.proxy.noteOutcome(error, through: proxies, environment)
    }

    func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        let path = settings.server.path
        let target = (path.hasSuffix("/") ? String(path.dropLast()) : path) + "/v1/" + settings.operation
        // Not repeatable: the server issues a certificate for each request.
        let response = try await session.response(
            to: HTTPRequest(target: target, json: ["csr": request.csr.pemRepresentation]))
        guard response.status == 200 else { throw refusal(response) }
        let answer = try response.json(Answer.self, from: settings.server).data
        let authorities = Set((answer.ca_chain ?? []) + [answer.issuing_ca])
        return .issued(
            try X509Certificate.certificates(pem: answer.certificate),
            authorities: try X509Certificate.certificates(pem: authorities.joined(separator: "\n")))
    }

    /// The error for a refusal: the server's own reason, without the token, and the parameter to check.
    private func refusal(_ response: HTTPResponse) -> ProviderError {
        let refusal = try? response.json(Refusal.self, from: settings.server)
        let advice: String? =
            switch response.status {
            case 400: "check 'role' and 'subject', and what the role permits"
            case 403:
                "check the token of 'token-source', and whether its policy permits 'update' on \(settings.operation)"
            case 404: "check 'mount' and the path of 'url'"
            default: nil
            }
        return response.refusal(
            of: "the request for a certificate", by: settings.server, reason: refusal?.errors.joined(separator: "; "),
            advice: advice, at: environment.now())
    }

    /// The part of the answer that matters, with Vault's own names.
    private struct Answer: Decodable {
        struct Issued: Decodable {
            let certificate: String
            let issuing_ca: String
            let ca_chain: [String]?
        }
        let data: Issued
    }

    private struct Refusal: Decodable { let errors: [String] }
}
