internal import COpenSSL
import Synchronization

/// An OpenSSL library context of our own ([OSSL_LIB_CTX(3)](https://docs.openssl.org/3.0/man3/OSSL_LIB_CTX/)).
///
/// The process's default context stays as it is: loading the legacy provider there would switch off the implicit
/// default provider for everybody else in the process, and would let RC2 and friends into places where nothing old is
/// to be read.
public final class OpenSSLLibrary: Sendable {
    /// Algorithms that are only read, never written: RC2, RC4, single DES.
    private let legacy = Mutex<Legacy>(.notLoaded)
    private enum Legacy {
        case notLoaded, unavailable
        case loaded(OpaquePointer)
    }

    /// Safe to share: OpenSSL locks a library context itself.
    nonisolated(unsafe) let context: OpaquePointer?
    nonisolated(unsafe) private let standard: OpaquePointer?

    /// To be looked at before OpenSSL's first use in a process, which decides: at the process's end other threads may
    /// still work, or free what they have, and OpenSSL must not be cleaned up under them.
    fileprivate static let staysToTheEnd = OPENSSL_init_crypto(UInt64(OPENSSL_INIT_NO_ATEXIT), nil) == 1

    public init() {
        _ = Self.staysToTheEnd
        context = OSSL_LIB_CTX_new()
        // Loading a provider explicitly switches off the implicit loading of the default one.
        standard = OSSL_PROVIDER_load(context, "default")
    }

    deinit {
        // What is not unloaded outlives the context.
        legacy.withLock { if case .loaded(let provider) = $0 { OSSL_PROVIDER_unload(provider) } }
        if let standard { OSSL_PROVIDER_unload(standard) }
        OSSL_LIB_CTX_free(context)
    }

    /// Makes the legacy provider's algorithms available too. Returns false when this host has no such provider.
    func loadLegacyProvider() -> Bool {
        legacy.withLock { state in
            if case .notLoaded = state {
                state = OSSL_PROVIDER_load(context, "legacy").map { .loaded($0) } ?? .unavailable
            }
            if case .loaded = state { return true }
            return false
        }
    }

    /// Frees what the calling thread has of this context, such as a random number generator. To be called after each
    /// use of random numbers, or of a private key, on the same thread: OpenSSL frees it when the thread ends, and by
    /// then the context is gone, where another thread has freed it
    /// ([OPENSSL_thread_stop_ex(3)](https://docs.openssl.org/3.0/man3/OPENSSL_init_crypto/)).
    func releaseThreadState() { OPENSSL_thread_stop_ex(context) }

    /// Runs a C call with an empty error queue; where it fails for want of an algorithm, once more with the legacy
    /// provider.
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
    /// Returns what OpenSSL calls an algorithm, or its number again, for messages.
    public static func name(ofOID oid: String) -> String {
        _ = Self.staysToTheEnd
        let identifier = OBJ_txt2nid(oid)
        guard identifier != NID_undef, let name = OBJ_nid2ln(identifier) else { return oid }
        return String(cString: name)
    }
}
