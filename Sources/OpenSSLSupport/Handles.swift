internal import COpenSSL
internal import CertificateProviding
internal import FoundationEssentials
internal import Glibc

/// Owns an `X509`. Retains the library, which must outlive it.
final class CertificateHandle {
    let pointer: OpaquePointer
    private let library: OpenSSLLibrary

    /// Reads a DER certificate. Trailing data is an error.
    init(_ der: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        self.library = library
        OpenSSLError.clear()
        var certificate = X509_new_ex(library.context, nil)
        let isWhole = der.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            // On failure, it frees the certificate and leaves nil.
            return d2i_X509(&certificate, &position, bytes.count) != nil
                && position == bytes.baseAddress.map { $0 + bytes.count }
        }
        guard let certificate else { throw OpenSSLError("d2i_X509") }
        pointer = certificate
        guard isWhole else { throw OpenSSLError("d2i_X509", refusing: "trailing data") }
    }

    deinit { X509_free(pointer) }
}

/// Owns an `EVP_PKEY`. Retains the library, which must outlive it.
final class PrivateKeyHandle {
    let pointer: OpaquePointer
    private let library: OpenSSLLibrary

    init(pkcs8: SecretBytes, in library: OpenSSLLibrary) throws(OpenSSLError) {
        self.library = library
        OpenSSLError.clear()
        let info = pkcs8.withUnsafeBytes { der in
            var position = der.bindMemory(to: UInt8.self).baseAddress
            return d2i_PKCS8_PRIV_KEY_INFO(nil, &position, der.count)
        }
        guard let info else { throw OpenSSLError("d2i_PKCS8_PRIV_KEY_INFO") }
        defer { PKCS8_PRIV_KEY_INFO_free(info) }
        guard let key = EVP_PKCS82PKEY_ex(info, library.context, nil) else { throw OpenSSLError("EVP_PKCS82PKEY_ex") }
        pointer = key
    }

    init(adopting key: OpaquePointer, in library: OpenSSLLibrary) { (pointer, self.library) = (key, library) }

    deinit { EVP_PKEY_free(pointer) }
}

/// Owns a memory `BIO`, and wipes its content when it is released.
final class MemoryBIO {
    let pointer: OpaquePointer

    init(_ content: [UInt8] = []) throws(OpenSSLError) {
        OpenSSLError.clear()
        guard let bio = BIO_new(BIO_s_mem()) else { throw OpenSSLError("BIO_new") }
        pointer = bio
        // Its end is an end of file, and not "try again".
        BIO_ctrl(bio, BIO_C_SET_BUF_MEM_EOF_RETURN, 0, nil)
        guard content.isEmpty || BIO_write(bio, content, Int32(clamping: content.count)) == content.count else {
            throw OpenSSLError("BIO_write")
        }
    }

    deinit { BIO_free(pointer) }

    /// The bytes that have been written and not yet read.
    var content: [UInt8] {
        var start: UnsafeMutablePointer<UInt8>?
        let count = withUnsafeMutablePointer(to: &start) { BIO_ctrl(pointer, BIO_CTRL_INFO, 0, $0) }
        return Array(UnsafeBufferPointer(start: start, count: max(0, count)))
    }
}

/// Owns a `STACK_OF(X509)` with a reference to each certificate in it.
final class CertificateStack {
    let pointer: OpaquePointer?

    init(_ certificates: [CertificateHandle]) throws(OpenSSLError) {
        OpenSSLError.clear()
        pointer = OPENSSL_sk_new_null()
        for certificate in certificates {
            X509_up_ref(certificate.pointer)
            guard OPENSSL_sk_push(pointer, UnsafeRawPointer(certificate.pointer)) > 0 else {
                X509_free(certificate.pointer)
                throw OpenSSLError("OPENSSL_sk_push")
            }
        }
    }

    init(adopting stack: OpaquePointer?) { pointer = stack }

    deinit { OPENSSL_sk_pop_free(pointer) { X509_free($0.map(OpaquePointer.init)) } }

    /// Each certificate, DER.
    func derRepresentations() throws(OpenSSLError) -> [[UInt8]] {
        try (0..<max(0, OPENSSL_sk_num(pointer))).map { index throws(OpenSSLError) in
            let certificate = OPENSSL_sk_value(pointer, index).map(OpaquePointer.init)
            return try OpenSSLLibrary.encode("i2d_X509") { i2d_X509(certificate, $0) }
        }
    }
}

extension OpenSSLLibrary {
    /// Returns the output of one of the `i2d` functions.
    static func encode(
        _ function: String, _ write: (UnsafeMutablePointer<UnsafeMutablePointer<UInt8>?>) -> Int32
    ) throws(OpenSSLError) -> [UInt8] {
        OpenSSLError.clear()
        var output: UnsafeMutablePointer<UInt8>?
        let count = write(&output)
        guard count > 0, let output else { throw OpenSSLError(function) }
        defer { CRYPTO_free(output, #fileID, #line) }
        return Array(UnsafeBufferPointer(start: output, count: Int(count)))
    }

    /// Returns a time; `nil` for a malformed one.
    static func date(_ time: UnsafePointer<ASN1_TIME>?) -> Date? {
        var fields = tm()
        // Without a time it would be that of now.
        guard let time, ASN1_TIME_to_tm(time, &fields) == 1 else { return nil }
        return Date(timeIntervalSince1970: TimeInterval(timegm(&fields)))
    }

    /// Returns a store for chains to anchors, roots or not, that are valid at a time. The caller frees it.
    static func store(trusting anchors: [CertificateHandle], at date: Date) throws(OpenSSLError) -> OpaquePointer {
        OpenSSLError.clear()
        guard let store = X509_STORE_new() else { throw OpenSSLError("X509_STORE_new") }
        for anchor in anchors where X509_STORE_add_cert(store, anchor.pointer) != 1 {
            X509_STORE_free(store)
            throw OpenSSLError("X509_STORE_add_cert")
        }
        let parameters = X509_STORE_get0_param(store)
        X509_VERIFY_PARAM_set_flags(parameters, UInt(X509_V_FLAG_PARTIAL_CHAIN))
        X509_VERIFY_PARAM_set_time(parameters, time_t(date.timeIntervalSince1970))
        // 80 bits: no SHA-1 in the chain.
        X509_VERIFY_PARAM_set_auth_level(parameters, 1)
        return store
    }
}
