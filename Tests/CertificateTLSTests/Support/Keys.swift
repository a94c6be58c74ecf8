import CertificateProviding
import Synchronization
import TestSupport

/// A key that cannot be exported, over one that could be.
struct HomeKey: IdentityKey {
    let inner: any IdentityKey
    /// Runs before each signature; may suspend, and may throw what a token would report.
    var willSign: @Sendable () async throws(CertificateProviderError) -> Void = {}

    var publicKey: PublicKeyInfo { inner.publicKey }
    var signatureSchemes: [SignatureScheme] { inner.signatureSchemes }
    var location: KeyLocation { .token }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        try await willSign()
        return try await inner.signature(for: message, using: scheme)
    }
}

enum KeyHome: String, CaseIterable, Sendable {
    case exportable, atHome
}

extension Identity {
    /// The same identity with a key that cannot be exported.
    func keptAtHome(
        willSign: @escaping @Sendable () async throws(CertificateProviderError) -> Void = {}
    ) throws -> Identity {
        try Identity(
            certificateChain: certificateChain, key: HomeKey(inner: key, willSign: willSign), provenance: provenance)
    }

    func kept(_ home: KeyHome) throws -> Identity { home == .atHome ? try keptAtHome() : self }
}

/// Holds each caller until it is opened.
final class Gate: Sendable {
    private struct State {
        var isOpen = false
        var waiting: [CheckedContinuation<Void, Never>] = []
    }
    private let state = Mutex(State())
    private let arrived: AsyncStream<Void>.Continuation
    /// Yields once for each caller that had to wait.
    let arrivals: AsyncStream<Void>

    init() { (arrivals, arrived) = AsyncStream.makeStream() }

    func pass() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() } else { arrived.yield() }
        }
    }

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }
}

/// Shows other schemes than the key within can do.
struct RestrictedKey: IdentityKey {
    var inner: any IdentityKey
    var signatureSchemes: [SignatureScheme]
    var publicKey: PublicKeyInfo { inner.publicKey }
    var location: KeyLocation { .token }
    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        try await inner.signature(for: message, using: scheme)
    }
}
