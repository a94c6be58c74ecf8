internal import COpenSSL

/// A failed OpenSSL call, with the whole error queue of the calling thread, oldest entry first.
///
/// The queue is cleared before a call and read right after it, on the same thread, so that it has no entry of another
/// call ([ERR_get_error(3)](https://docs.openssl.org/3.0/man3/ERR_get_error/)).
package struct OpenSSLError: Error, CustomStringConvertible {
    /// One entry of the queue.
    package struct Entry: Sendable {
        /// The number of the library part, such as `ERR_LIB_EVP`.
        package let library: Int32
        /// The reason code of that library part.
        package let reason: Int32
        /// OpenSSL's text for the reason. Never contains key material or a password.
        package let text: String
    }

    /// The C function that failed.
    package let function: String
    /// The error queue, oldest entry first.
    package let entries: [Entry]
    /// OpenSSL's explanation of the newest entry, such as why a chain is not valid; `nil` where none is asked for.
    package private(set) var detail: String?

    /// Empties the queue. Call it before the C function whose errors are wanted.
    static func clear() { ERR_clear_error() }

    /// Reads and empties the queue, after `function` has failed.
    init(_ function: String) {
        self.function = function
        var entries: [Entry] = []
        while case let code = ERR_get_error(), code != 0 {
            let text = ERR_reason_error_string(code).map { String(cString: $0) } ?? "error \(String(code, radix: 16))"
            entries.append(Entry(library: ERR_GET_LIB(code), reason: ERR_GET_REASON(code), text: text))
        }
        self.entries = entries
    }

    /// As ``init(_:)``, with the explanation of the newest entry: only for calls without secrets.
    init(explained function: String) {
        var text: UnsafePointer<CChar>?
        var flags: Int32 = 0
        ERR_peek_last_error_data(&text, &flags)
        let detail = flags & ERR_TXT_STRING != 0 ? text.map { String(cString: $0) } : nil
        self.init(function)
        self.detail = detail?.isEmpty == false ? detail : nil
    }

    /// For input that OpenSSL accepts and this module does not.
    init(_ function: String, refusing text: String, isAlgorithm: Bool = false) {
        self.function = function
        entries = [Entry(library: 0, reason: isAlgorithm ? Self.refusedAlgorithm : 0, text: text)]
    }

    private static let refusedAlgorithm: Int32 = 1

    /// Whether the call failed because an algorithm is not supported, and not because the data is wrong.
    package var isUnsupportedAlgorithm: Bool {
        entries.contains { entry in
            switch (entry.library, entry.reason) {
            case (ERR_LIB_EVP, EVP_R_UNSUPPORTED_ALGORITHM), (ERR_LIB_EVP, EVP_R_UNKNOWN_PBE_ALGORITHM),
                (ERR_LIB_EVP, EVP_R_UNKNOWN_CIPHER), (ERR_LIB_EVP, EVP_R_UNKNOWN_DIGEST),
                (ERR_LIB_EVP, EVP_R_UNSUPPORTED_CIPHER), (ERR_LIB_EVP, EVP_R_UNSUPPORTED_PRF),
                (ERR_LIB_EVP, EVP_R_UNSUPPORTED_KEY_DERIVATION_FUNCTION), (ERR_LIB_EVP, EVP_R_NO_CIPHER_SET),
                (ERR_LIB_EVP, EVP_R_UNSUPPORTED_KEYLENGTH), (ERR_LIB_PKCS12, PKCS12_R_UNSUPPORTED_PKCS12_MODE),
                (0, Self.refusedAlgorithm):
                true
            default:
                // Fetching fails with ERR_R_UNSUPPORTED, whichever library asked.
                entry.text == "unsupported"
            }
        }
    }

    /// The reason of this module's own refusal of input that OpenSSL accepts; `nil` for OpenSSL's own errors.
    package var refusal: String? { entries.first { $0.library == 0 }?.text }

    /// Whether the content has no known structure, such as after a decryption with a wrong password whose padding is right by chance.
    package var isOfDecoder: Bool { entries.contains { $0.library == ERR_LIB_OSSL_DECODER } }

    /// The function and the texts of the entries.
    package var description: String {
        "\(function): " + (entries.isEmpty ? "no reason given" : entries.map(\.text).joined(separator: "; "))
    }
}
