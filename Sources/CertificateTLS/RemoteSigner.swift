import CertificateProviding
import NIOCore
import NIOSSL

/// Lets BoringSSL sign with a key that stays where it is.
///
/// Equality is the object's own: another key object for the same public key may have another home.
final class RemoteSigner: NIOSSLCustomPrivateKey {
    private let key: any IdentityKey
    let signatureAlgorithms: [SignatureAlgorithm]

    init(_ key: any IdentityKey, algorithms: [SignatureAlgorithm]) {
        self.key = key
        self.signatureAlgorithms = algorithms
    }

    /// Called on the channel's event loop, which goes on with other work until the key answers. A failure surfaces in
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

    /// RSA key exchange, which TLS 1.3 abolished and our configurations do not offer: a key for signatures must not
    /// decrypt what a peer sends (RFC 9325, section 4.1).
    func decrypt(channel: any Channel, data: ByteBuffer) -> EventLoopFuture<ByteBuffer> {
        channel.eventLoop.makeFailedFuture(
            CertificateProviderError(
                .unsupportedAlgorithm, "The key signs but does not decrypt; use cipher suites with ECDHE."))
    }
}

extension RemoteSigner: Hashable {
    static func == (left: RemoteSigner, right: RemoteSigner) -> Bool { left === right }
    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

/// What the pipeline of a connection hears of the signature that its handshake waits for.
enum SignatureEvent: Sendable { case begun, ended }
