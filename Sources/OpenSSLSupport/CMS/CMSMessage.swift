internal import COpenSSL

/// Owns a `CMS_ContentInfo` (RFC 5652, section 3).
final class CMSMessage {
    let pointer: OpaquePointer

    /// Reads a message, BER or DER. Trailing data is an error.
    init(_ message: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        OpenSSLError.clear()
        var content = CMS_ContentInfo_new_ex(library.context, nil)
        let isWhole = message.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            // On failure, it frees the structure and leaves nil.
            return d2i_CMS_ContentInfo(&content, &position, bytes.count) != nil
                && position == bytes.baseAddress.map { $0 + bytes.count }
        }
        guard let content else { throw OpenSSLError("d2i_CMS_ContentInfo") }
        pointer = content
        guard isWhole else { throw OpenSSLError("d2i_CMS_ContentInfo", refusing: "trailing data") }
    }

    init(adopting content: OpaquePointer) { pointer = content }

    deinit { CMS_ContentInfo_free(pointer) }

    func derRepresentation() throws(OpenSSLError) -> [UInt8] {
        try OpenSSLLibrary.encode("i2d_CMS_ContentInfo") { i2d_CMS_ContentInfo(pointer, $0) }
    }

    /// Throws unless the message has this content type. The functions for one type must not be called for another.
    func require(_ type: Int32) throws(OpenSSLError) {
        guard OBJ_obj2nid(CMS_get0_type(pointer)) == type else {
            throw OpenSSLError(
                "CMS_get0_type", refusing: "the message type is not \(String(cString: OBJ_nid2ln(type)))")
        }
    }
}
