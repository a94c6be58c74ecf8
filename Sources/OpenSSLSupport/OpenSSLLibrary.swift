internal import COpenSSL
import Synchronization

/// A separate OpenSSL library context ([OSSL_LIB_CTX(3)](https://docs.openssl.org/3.0/man3/OSSL_LIB_CTX/)).
///
/// The process's default context is not changed: loading the legacy provider there would disable the implicit default
/// provider for the rest of the process, and would enable old algorithms such as RC2 where they must not be accepted.
package final class OpenSSLLibrary: Sendable {
    /// The provider of algorithms that are only used for decryption: RC2, RC4, single DES.
    private let legacy = Mutex<Legacy>(.notLoaded)
    private enum Legacy {
        case notLoaded, unavailable
        case loaded(OpaquePointer)
    }

    /// Safe to share between threads: OpenSSL locks a library context itself.
    nonisolated(unsafe) let context: OpaquePointer?

    /// Contexts that no library uses now, for the next ones. None is ever freed: OpenSSL keeps state of a context for
    /// each thread that used it, such as a random number generator, and frees that when the thread ends, through the
    /// context (openssl/openssl#16778, #29076). A thread of the caller's pool ends at any time.
    private static let idle = Mutex<[Context]>([])
    private struct Context: @unchecked Sendable {
        /// Used by one library at a time, which shares it between threads as above.
        let pointer: OpaquePointer?
    }

    /// Keeps OpenSSL from cleaning up at exit, while other threads may still use it or free its objects. Has an effect
    /// only if it is evaluated before OpenSSL's first use in the process.
    fileprivate static let staysToTheEnd = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1

    /// Takes a library context with the default provider: one that is idle, else a new one.
    package init() {
        _ = Self.staysToTheEnd
        if let context = Self.idle.withLock({ $0.popLast() }) {
            self.context = context.pointer
        } else {
            context = OSSL_LIB_CTX_new()
            // Loading a provider explicitly switches off the implicit loading of the default one.
            _ = OSSL_PROVIDER_load(context, "default")
        }
    }

    deinit {
        legacy.withLock { if case .loaded(let provider) = $0 { OSSL_PROVIDER_unload(provider) } }
        let context = Context(pointer: context)
        Self.idle.withLock { $0.append(context) }
    }

    /// Loads the legacy provider. Returns false if this host does not have it.
    func loadLegacyProvider() -> Bool {
        legacy.withLock { state in
            if case .notLoaded = state {
                state = OSSL_PROVIDER_load(context, "legacy").map { .loaded($0) } ?? .unavailable
            }
            if case .loaded = state { return true }
            return false
        }
    }

    /// Runs a C call with an empty error queue. If it fails because an algorithm is not supported, runs it once more
    /// with the legacy provider.
    func attempt<T>(_ function: String, _ call: () -> T?) throws(OpenSSLError) -> T {
        OpenSSLError.clear()
        if let result = call() { return result }
        let error = OpenSSLError(function)
        guard error.isUnsupportedAlgorithm, loadLegacyProvider() else { throw error }
        OpenSSLError.clear()
        if let result = call() { return result }
        throw OpenSSLError(function)
    }
}

extension OpenSSLLibrary {
    /// Returns OpenSSL's name of an object identifier, for messages; the identifier itself if it has none.
    package static func name(ofOID oid: String) -> String {
        _ = Self.staysToTheEnd
        let identifier = OBJ_txt2nid(oid)
        guard identifier != NID_undef, let name = OBJ_nid2ln(identifier) else { return oid }
        return String(cString: name)
    }
}
