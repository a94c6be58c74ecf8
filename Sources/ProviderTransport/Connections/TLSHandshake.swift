import CertificateProviding
import CertificateTLS
import FoundationEssentials
import NIOCore
import NIOSSL
import NIOTLS
import Synchronization

/// The TLS handshake of a new connection.
final class TLSHandshake: Sendable {
    let eventLoop: any EventLoop
    let binding = ChannelBinding()
    let presentation: CertificatePresentation
    private let server: ServerURL
    private let security: ServerSecurity
    private let context: NIOSSLContext
    private let completed: EventLoopPromise<Void>
    private let refusal = Mutex<ProviderError?>(nil)
    private let verification = Mutex<Task<Void, Never>?>(nil)

    /// Blocks while the file of trust anchors is read.
    init(
        _ server: ServerURL, _ security: ServerSecurity, on eventLoop: any EventLoop
    ) throws(ProviderError) {
        var security = security
        // Read once, here: the verification must not block.
        security.trust.trustAnchors = try security.trust.trustAnchors.read()
        self.server = server
        self.security = security
        self.eventLoop = eventLoop
        presentation = CertificatePresentation(binding, hasCertificate: security.credentials != nil)
        // Chain and name are verified below, not by BoringSSL, which would read the whole system trust store for nothing, and
        // knows no underscore.
        var configuration = TLSConfiguration.makeConfiguration(forHandlerThatVerifies: [])
        if let credentials = security.credentials {
            credentials.present(in: &configuration)
            // For a server that asks for the certificate only for some paths (TLS 1.2). NIOSSL fails there with anything
            // that it has to wait for: a callback, or a key that is elsewhere.
            if configuration.sslContextCallback == nil, credentials.identity.key.exporter != nil {
                configuration.renegotiationSupport = .once
            }
        }
        configuration.applicationProtocols = ["http/1.1"]
        configuration.keyLogCallback = binding.secretsCallback
        do { context = try NIOSSLContext(configuration: configuration) } catch {
            throw ProviderError(.internal, "TLS cannot be set up.", underlying: error)
        }
        completed = eventLoop.makePromise()
    }

    /// The reason why the server is not trusted; `nil` if it is trusted or not verified yet.
    var verdict: ProviderError? { refusal.withLock { $0 } }

    func prepare(_ channel: any Channel) throws {
        let pipeline = channel.pipeline.syncOperations
        let isAddress = (try? SocketAddress(ipAddress: server.host, port: 0)) != nil
        let handler = try NIOSSLClientHandler(
            context: context, serverHostname: isAddress ? nil : server.host,
            customVerificationCallbackWithMetadata: { [self] shown, promise in
                let task = promise.completeWithTask { await self.verify(shown) }
                verification.withLock { $0 = task }
            })
        try pipeline.addHandler(binding.makeRecorder())
        try pipeline.addHandler(presentation.makeRecorder())
        try pipeline.addHandler(handler)
        try pipeline.addHandler(HandshakeWaiter(completed, presentation))
    }

    func completion(before deadline: NIODeadline) async throws {
        let timer = eventLoop.scheduleTask(deadline: deadline) { [completed] in
            completed.fail(ChannelError.connectTimeout(.zero))
        }
        defer { timer.cancel() }
        try await completed.futureResult.get()
    }

    /// Cancels the handshake and the verification after the connection has failed.
    func abandon() {
        completed.fail(ChannelError.eof)
        verification.withLock(\.self)?.cancel()
    }

    private func verify(_ shown: [NIOSSLCertificate]) async -> NIOSSLVerificationResultWithMetadata {
        do throws(ProviderError) {
            var chain: [X509Certificate] = []
            for certificate in shown {
                guard let bytes = try? certificate.toDERBytes() else { continue }
                chain.append(try X509Certificate(derRepresentation: bytes))
            }
            guard !security.skipsVerification else {
                try security.checkPins(chain)
                return .certificateVerified(VerificationMetadata(nil))
            }
            var trust = security.trust
            trust.settingName = trust.settingName ?? security.settingNames.trustAnchors
            try await trust.verify(chain, for: server.host, at: security.now())
            return .certificateVerified(VerificationMetadata(nil))
        } catch {
            // A cancelled verification says nothing about the server.
            if !Task.isCancelled { refusal.withLock { $0 = error } }
            return .failed
        }
    }
}

extension ServerSecurity {
    /// Refuses an unverified chain without a pinned certificate. A match proves little, since the chain is not
    /// verified; a mismatch proves that it is another server.
    fileprivate func checkPins(_ chain: [X509Certificate]) throws(ProviderError) {
        let pins = trust.pins
        guard pins.isEmpty || chain.contains(where: { one in pins.contains { $0.matches(one) } }) else {
            throw ProviderError(
                .serverNotTrusted,
                "The server's certificate is not trusted: no pin matches it; check the server, then correct the pin.")
        }
    }
}

/// Completes a promise when the handshake succeeds or fails, and records an alert that arrives later.
private final class HandshakeWaiter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let completed: EventLoopPromise<Void>
    private let presentation: CertificatePresentation

    init(_ completed: EventLoopPromise<Void>, _ presentation: CertificatePresentation) {
        (self.completed, self.presentation) = (completed, presentation)
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case TLSUserEvent.handshakeCompleted? = event as? TLSUserEvent {
            presentation.complete()
            completed.succeed()
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        presentation.note(error)
        completed.fail(error)
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        completed.fail(ChannelError.eof)
        context.fireChannelInactive()
    }
}
