import CertificateProviding
import NIOCore
import NIOSSL

/// Signs for BoringSSL with a key that cannot be exported.
///
/// Equality is identity of the object: another key object for the same public key may use another key store.
final class RemoteSigner: NIOSSLCustomPrivateKey {
    private let key: any IdentityKey
    let signatureAlgorithms: [SignatureAlgorithm]

    init(_ key: any IdentityKey, algorithms: [SignatureAlgorithm]) {
        self.key = key
        self.signatureAlgorithms = algorithms
    }

    /// Signs `data`. Called on the channel's event loop, which continues until the key has signed. A failure appears in
    /// the pipeline as the key's own error.
    func sign(
        channel: any Channel, algorithm: SignatureAlgorithm, data: ByteBuffer
    ) -> EventLoopFuture<ByteBuffer> {
        let promise = channel.eventLoop.makePromise(of: ByteBuffer.self)
        channel.pipeline.fireUserInboundEventTriggered(SignatureEvent.begun)
        promise.futureResult.whenComplete { _ in
            channel.pipeline.fireUserInboundEventTriggered(SignatureEvent.ended)
        }
        let message = Array(buffer: data)
        if let signer = key.callbackSigner {
            signer.sign(message, using: algorithm.scheme) { result in
                promise.completeWith(result.map { ByteBuffer(bytes: $0) }.mapError { $0 })
            }
            return promise.futureResult
        }
        // A peer is waiting, and may give up: before other work of the cooperative pool. The task is cancelled when the
        // connection goes away first.
        let task = Task(priority: .high) { [key] in
            do {
                let signature = try await key.signature(for: message, using: algorithm.scheme)
                promise.succeed(ByteBuffer(bytes: signature))
            } catch {
                promise.fail(error)
            }
        }
        channel.closeFuture.whenComplete { _ in task.cancel() }
        return promise.futureResult
    }

    /// Refuses RSA key exchange, which TLS 1.3 abolished and our configurations do not offer: a signature key must not
    /// decrypt data from a peer (RFC 9325, section 4.1).
    func decrypt(channel: any Channel, data: ByteBuffer) -> EventLoopFuture<ByteBuffer> {
        channel.eventLoop.makeFailedFuture(
            ProviderError(
                .unsupportedAlgorithm, "The key must not decrypt in TLS; use cipher suites with ECDHE."))
    }
}

extension RemoteSigner: Hashable {
    static func == (left: RemoteSigner, right: RemoteSigner) -> Bool { left === right }
    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

/// Events in the pipeline about the signature that the handshake waits for.
enum SignatureEvent: Sendable { case begun, ended }
