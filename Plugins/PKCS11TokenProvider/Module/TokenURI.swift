import CP11Kit
import CertificateProviding
import Glibc

/// A PKCS#11 URI (RFC 7512): which module, token and object are meant.
///
/// Slots are never matched by their number: numbers change when a reader is plugged in.
final class TokenURI: Sendable {
    /// Only read after `init`; p11-kit's matching functions do not write to it.
    nonisolated(unsafe) private let uri: OpaquePointer
    /// The URI as given, without a PIN.
    let text: String
    /// What the URI says of the module and the PIN's source, with its question mark; empty where it says nothing, or
    /// has a PIN. It holds for every object of the token.
    let query: String
    /// A PIN that stands in the URI itself: unsafe, since configuration is read by many.
    let pinValue: SecretBytes?

    /// - Throws: `configurationInvalid`, without showing the URI's query, in which a PIN may be.
    init(_ text: String) throws(CertificateProviderError) {
        guard text.lowercased().hasPrefix("pkcs11:") else {
            // Nor shown: somebody may have written the PIN there.
            throw CertificateProviderError(
                .configurationInvalid, "The PKCS#11 URI does not begin with pkcs11: (RFC 7512).")
        }
        guard let uri = p11_kit_uri_new() else { throw CertificateProviderError(.internal, "Out of memory.") }
        self.uri = uri
        let written = WrittenURI(text)
        self.text = written.path
        try written.check()
        let result = p11_kit_uri_parse(written.text, P11KitUriType(P11_KIT_URI_FOR_ANY.rawValue), uri)
        self.pinValue = Self.takePIN(from: uri)
        query = pinValue == nil ? written.query : ""
        guard result == P11_KIT_URI_OK.rawValue else {
            let reason = p11_kit_uri_message(result).map { String(cString: $0) } ?? "no reason given"
            throw CertificateProviderError(
                .configurationInvalid, "'\(DisplayText.visible(self.text))' is not a PKCS#11 URI (RFC 7512): \(reason)."
            )
        }
        guard p11_kit_uri_any_unrecognized(uri) == 0 else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(DisplayText.visible(self.text))' can match no object: it has an attribute with an "
                    + "unknown name, an unknown 'type', or a value that is too long; see RFC 7512, section 2.3.")
        }
        // What was remembered of a token that pads its fields with NULs has them.
        let pad = FieldPadding(keepsEmpty: true)
        p11_kit_uri_get_module_info(uri).pointee.padWithBlanks(pad)
        p11_kit_uri_get_slot_info(uri).pointee.padWithBlanks(pad)
        p11_kit_uri_get_token_info(uri).pointee.padWithBlanks(pad)
        guard pinSource == nil || pinValue == nil else {
            throw CertificateProviderError(
                .configurationInvalid,
                "A PKCS#11 URI must not have both 'pin-source' and 'pin-value' (RFC 7512, section 2.4); remove "
                    + "'pin-value'.")
        }
        guard modulePath?.hasPrefix("/") ?? true else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The 'module-path' of a PKCS#11 URI must be an absolute path (RFC 7512, section 2.4).")
        }
        guard p11_kit_uri_get_slot_id(uri) == CK_SLOT_ID.max else {
            throw CertificateProviderError(
                .configurationInvalid,
                "A PKCS#11 URI must not have 'slot-id', which changes when a reader is plugged in; use 'token' or "
                    + "'serial'.")
        }
    }

    deinit { p11_kit_uri_free(uri) }

    /// Whether it may mean an identity: a certificate or its private key, which it is called by here.
    var meansIdentity: Bool {
        guard let bytes = attribute(CKA_CLASS) else { return true }
        return [CKO_CERTIFICATE, CKO_PRIVATE_KEY].contains { Attribute(CKA_CLASS, $0).value == bytes }
    }

    var moduleName: String? { p11_kit_uri_get_module_name(uri).map { String(cString: $0) } }
    var modulePath: String? { p11_kit_uri_get_module_path(uri).map { String(cString: $0) } }
    /// Where the PIN is. Not the PIN.
    var pinSource: String? { p11_kit_uri_get_pin_source(uri).map { String(cString: $0) } }

    /// Leaves no copy of the PIN with p11-kit, which would free it unwiped.
    private static func takePIN(from uri: OpaquePointer) -> SecretBytes? {
        guard let text = p11_kit_uri_get_pin_value(uri) else { return nil }
        defer {
            explicit_bzero(UnsafeMutablePointer(mutating: text), strlen(text))
            p11_kit_uri_set_pin_value(uri, nil)
        }
        return SecretBytes(copying: UnsafeRawBufferPointer(start: text, count: strlen(text)))
    }

    func matches(_ module: CK_INFO) -> Bool {
        withUnsafePointer(to: module) { p11_kit_uri_match_module_info(uri, $0) == 1 }
    }

    func matches(_ slot: CK_SLOT_INFO, _ token: CK_TOKEN_INFO) -> Bool {
        withUnsafePointer(to: slot) { p11_kit_uri_match_slot_info(uri, $0) == 1 }
            && withUnsafePointer(to: token) { p11_kit_uri_match_token_info(uri, $0) == 1 }
    }

    func matches(_ slot: Slot) -> Bool {
        withUnsafePointer(to: slot.token) { p11_kit_uri_match_token_info(uri, $0) == 1 }
    }

    /// Whether another URI, of a key say, names the token that this one means.
    func meansToken(of other: String) -> Bool {
        guard let other = try? TokenURI(other) else { return false }
        return p11_kit_uri_match_token_info(uri, p11_kit_uri_get_token_info(other.uri)) == 1
    }

    /// Whether the URI says which token is meant, and not only which kind.
    var namesToken: Bool {
        // What the URI does not say begins with a NUL.
        let token = p11_kit_uri_get_token_info(uri).pointee
        return token.label.0 != 0 || token.serialNumber.0 != 0
            || (token.model.0 != 0 && token.manufacturerID.0 != 0)
    }

    /// `CKA_ID` of the object that is meant, where the URI names one.
    var objectID: [UInt8]? { attribute(CKA_ID) }
    /// `CKA_LABEL` of the object that is meant, where the URI names one.
    var objectLabel: [UInt8]? { attribute(CKA_LABEL) }

    /// Whether it says which object on a token is meant.
    var namesObject: Bool { objectID != nil || objectLabel != nil }

    private func attribute(_ type: CK_ATTRIBUTE_TYPE) -> [UInt8]? {
        guard let attribute = p11_kit_uri_get_attribute(uri, type)?.pointee else { return nil }
        return Array(UnsafeRawBufferPointer(start: attribute.pValue, count: Int(attribute.ulValueLen)))
    }

    /// Returns the URI of an object on a token.
    static func text(of token: CK_TOKEN_INFO, class objectClass: CK_OBJECT_CLASS?, id: [UInt8], label: [UInt8])
        -> String?
    {
        guard let uri = p11_kit_uri_new() else { return nil }
        defer { p11_kit_uri_free(uri) }
        p11_kit_uri_get_token_info(uri).pointee = token
        if var objectClass { set(uri, CKA_CLASS, &objectClass, MemoryLayout<CK_OBJECT_CLASS>.size) }
        for (type, value) in [(CKA_ID, id), (CKA_LABEL, label)] where !value.isEmpty {
            var value = value
            set(uri, type, &value, value.count)
        }
        var text: UnsafeMutablePointer<CChar>?
        let kind = P11KitUriType(P11_KIT_URI_FOR_OBJECT_ON_TOKEN.rawValue)
        guard p11_kit_uri_format(uri, kind, &text) == P11_KIT_URI_OK.rawValue, let text else { return nil }
        defer { free(text) }
        return String(cString: text)
    }

    /// p11-kit copies the value.
    private static func set(
        _ uri: OpaquePointer, _ type: CK_ATTRIBUTE_TYPE, _ value: UnsafeMutableRawPointer, _ count: Int
    ) {
        var attribute = CK_ATTRIBUTE(type: type, pValue: value, ulValueLen: CK_ULONG(count))
        _ = p11_kit_uri_set_attribute(uri, &attribute)
    }
}
