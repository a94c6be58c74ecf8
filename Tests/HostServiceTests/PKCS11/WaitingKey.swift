import CertificateProviding
import Synchronization

/// A key that signs digests when a test lets it, as one of a slow token.
final class WaitingKey: IdentityKey, DigestSigning {
    private let key: any IdentityKey
    private let state = Mutex<(isOpen: Bool, waiting: [CheckedContinuation<Void, Never>])>((false, []))

    init(_ key: any IdentityKey) { self.key = key }

    var publicKey: PublicKeyInfo { key.publicKey }
    var signatureSchemes: [SignatureScheme] { key.signatureSchemes }
    var location: KeyLocation { .token }
    var digestSigner: (any DigestSigning)? { self }
    var digestSchemes: [SignatureScheme] { key.digestSigner?.digestSchemes ?? [] }

    var waitingCount: Int { state.withLock(\.waiting.count) }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            return state.waiting
        }
        for one in waiting { one.resume() }
    }

    func signature(for message: [UInt8], using scheme: SignatureScheme) async throws(ProviderError) -> [UInt8] {
        try await key.signature(for: message, using: scheme)
    }

    func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
        guard let signer = key.digestSigner else { throw ProviderError(.internal, "no digests") }
        return try await signer.signature(forDigest: digest, using: scheme)
    }
}
