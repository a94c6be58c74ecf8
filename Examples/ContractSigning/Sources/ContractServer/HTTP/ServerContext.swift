import Hummingbird
import Logging
import NIOCore
import NIOSSL

/// The context of a request that has arrived.
struct ServerContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let channel: any Channel

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        channel = source.channel
    }

    /// Logs a refusal, and where the request comes from.
    func warn(_ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
        let from: Logger.Metadata = ["from": "\(channel.remoteAddress?.ipAddress ?? "unknown")"]
        logger.warning(message, metadata: from.merging(metadata) { $1 })
    }
}

/// Finds the certificate that the client of a request has shown, and has the key of.
protocol ClientCertificates: Sendable {
    /// - Returns: The fingerprint; `nil` if it has shown none.
    func fingerprint(of request: Request, on channel: any Channel) async throws -> String?
}

/// The certificate of the TLS connection.
struct TLSClientCertificates: ClientCertificates {
    func fingerprint(of request: Request, on channel: any Channel) async throws -> String? {
        guard let certificate = try await channel.nioSSL_peerCertificate().get() else { return nil }
        return HostRegistry.fingerprint(try certificate.toDERBytes())
    }
}

/// Finds the paired host of a request. A connection may outlive a pairing: each request is checked.
struct HostAuthentication: Sendable {
    let registry: HostRegistry
    let certificates: any ClientCertificates

    /// - Throws: `HTTPError`: 403 for no certificate, and for one of no paired host.
    func host(of request: Request, _ context: ServerContext) async throws -> Host {
        guard let fingerprint = try await certificates.fingerprint(of: request, on: context.channel) else {
            throw HTTPError(.forbidden, message: "The connection has no client certificate. Pair this host.")
        }
        guard let host = try await registry.host(withCertificate: fingerprint) else {
            context.warn("certificate of no paired host", ["sha256": "\(fingerprint)"])
            throw HTTPError(
                .forbidden,
                message: "The client certificate is of no paired host, or it is expired.")
        }
        return host
    }
}
