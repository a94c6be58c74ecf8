import COpenSSLCurves
import CertificateProviding

/// Errors of OpenSSL. The queue is of the calling thread: it is emptied before a call, and read right after it.
enum OpenSSLFailure {
    static func clear() { ERR_clear_error() }

    /// Reads and empties the queue, after `function` has failed. Its texts have no secrets.
    static func error(of function: String) -> ProviderError {
        ProviderError(
            .internal, "OpenSSL's \(function) has failed: \(texts()). Look whether memory is short, else report it.")
    }

    private static func texts() -> String {
        var texts: [String] = []
        while case let code = ERR_get_error(), code != 0 {
            texts.append(ERR_reason_error_string(code).map { String(cString: $0) } ?? String(code, radix: 16))
        }
        return texts.isEmpty ? "no reason given" : texts.joined(separator: "; ")
    }

    /// Calls a function that returns 1 if it succeeds.
    static func check(_ function: String, _ body: () -> Int32) throws(ProviderError) {
        clear()
        guard body() == 1 else { throw error(of: function) }
    }

    /// Calls a function that makes something.
    static func made<Made>(
        _ function: String, _ body: () -> Made?
    ) throws(ProviderError) -> Made {
        clear()
        guard let made = body() else { throw error(of: function) }
        return made
    }
}

/// Owns a `BN_CTX`: the temporary numbers of one call, which are cleared when it is freed.
final class NumberContext {
    let pointer: OpaquePointer

    init() throws(ProviderError) {
        pointer = try OpenSSLFailure.made("BN_CTX_secure_new") { BN_CTX_secure_new() }
    }

    deinit { BN_CTX_free(pointer) }
}
