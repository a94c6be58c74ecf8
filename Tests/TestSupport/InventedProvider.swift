public import CertificateProviding
public import Enrolment
import Synchronization

/// A provider for a kind of server that does not exist, as another team would write it: a parameter list, the facts of the protocol,
/// and the calls. The engine does the rest. The server takes a ticket with each request, decides when it likes, and wants each
/// certificate to be accepted.
public struct InventedProvider: EnrolmentProtocol {
    public static let id = ProviderID("invented")

    private static let subject = Parameter.required("subject", summary: "Subject of the certificate (RFC 4514).")
    private static let key = Parameter<any KeyStore>.keyStore(
        "key", default: "store:", summary: "Key store of the private key.")
    private static let pass = Parameter.requiredSecretSource("pass", summary: "Secret source of the pass phrase.")

    /// The entry of the provider for a registry.
    public static func descriptor(_ server: InventedServer, needsKeyFirst: Bool = false) -> ProviderDescriptor {
        ProviderDescriptor(
            id: id, displayName: "Invented", summary: "Requests an identity from a server in memory.",
            parameters: [
                subject.descriptor, key.descriptor, pass.descriptor, IdentityUsage.parameter.descriptor,
            ]
        ) { environment, parameters throws(ProviderError) in
            let names = try parameters.reading(subject) { () throws(ProviderError) in
                try CertificateRequest.Names(subject: parameters[subject])
            }
            let plan = EnrolmentPlan(
                names: names, usage: parameters[IdentityUsage.parameter], keyStore: parameters[key],
                timeout: .seconds(60),
                storageName: StoredIdentity.name(distinguishedBy: [server.name, names.subjectText]))
            let own = Self(
                server: server, pass: parameters[pass], needsKeyFirst: needsKeyFirst, environment: environment)
            return EnrollingProvider(id, own, plan, environment)
        }
    }

    private let server: InventedServer
    private let pass: SecretSource
    public let needsKeyFirst: Bool
    private let environment: ProviderEnvironment

    public var serverName: String { server.name }
    public var source: String { "memory:\(server.name)" }

    public func session(
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> any EnrolmentSession {
        let secret = try await environment.secret(
            from: pass, prompt: "Pass phrase for \(server.name)", interaction: interaction)
        return Session(server: server, pass: secret)
    }

    private struct Session: EnrolmentSession {
        let server: InventedServer
        let pass: SecretBytes

        func connect(renewing current: Identity?) async throws(ProviderError) -> EnrolmentTerms {
            try server.hear("connect")
            guard pass == server.pass else {
                throw ProviderError(.rejected, "\(server.name) does not know the pass phrase; check 'pass'.")
            }
            return EnrolmentTerms(authorities: server.authorities, keyType: server.keyType)
        }

        func request(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
            var ticket = request.state
            if ticket.isEmpty || !server.knows(ticket) {
                // Written down before the server hears of it: a kill leaves no second ticket.
                if ticket.isEmpty { ticket = (0..<16).map { _ in .random(in: 0...255) } }
                try await request.remember(ticket)
                try server.submit(ticket, request.csr, of: request.names, for: request.key.publicKey)
            }
            switch try server.look(ticket) {
            case .waiting: return .pending(retryAfter: server.retryAfter)
            case .issued(let leaf): return .issued([leaf])
            case .refused:
                // A status that means the request.
                throw ProviderError(
                    .rejected, "\(server.name) refuses the request; ask its administrator.", nativeCode: 422)
            }
        }

        func confirm(
            _ issued: IssuedCertificate, _ request: EnrolmentRequest
        ) async throws(ProviderError) { try server.accept(request.state) }

        func canEnrolAnew(after error: ProviderError) -> Bool { server.hasForgottenRenewals }
    }
}
