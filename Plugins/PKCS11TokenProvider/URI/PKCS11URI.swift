import CP11Kit
import CertificateProviding

/// A PKCS#11 URI (RFC 7512): which module, token and object are meant.
///
/// Slots are never matched by their number: numbers change when a reader is plugged in.
struct PKCS11URI: Sendable {
    /// The URI without white space and without its query: never a PIN.
    let text: String
    /// The query with its question mark, which holds for every object of the token. Empty if there is none, or if a PIN
    /// is in it.
    let query: String
    /// The required values of the fields of module, slot and token.
    let fields: [Field: [UInt8]]
    /// `library-version`.
    let libraryVersion: Version?
    /// `CKA_ID` of the object; `nil` if the URI does not have one.
    var objectID: [UInt8]?
    /// `CKA_LABEL` of the object; `nil` if the URI does not have one.
    let objectLabel: [UInt8]?
    let objectClass: CK_OBJECT_CLASS?
    let moduleName: String?
    let modulePath: String?
    /// The source of the PIN. Not the PIN.
    let pinSource: String?
    /// A PIN in the URI itself: unsafe, since configuration is read by many.
    let pinValue: SecretBytes?

    struct Version: Sendable, Equatable {
        let major, minor: UInt8
    }

    /// An attribute that a field of fixed length is compared with.
    enum Field: String, CaseIterable {
        case libraryDescription = "library-description"
        case libraryManufacturer = "library-manufacturer"
        case slotDescription = "slot-description"
        case slotManufacturer = "slot-manufacturer"
        case model, manufacturer, serial, token

        /// The length of the field, in bytes.
        var size: Int {
            switch self {
            case .slotDescription: 64
            case .model, .serial: 16
            case .libraryDescription, .libraryManufacturer, .slotManufacturer, .manufacturer, .token: 32
            }
        }
    }

    /// The same without the object's id.
    var withoutID: PKCS11URI {
        var copy = self
        copy.objectID = nil
        return copy
    }

    // MARK: What it means

    func matches(_ module: CK_INFO) -> Bool {
        let version = Version(major: module.libraryVersion.major, minor: module.libraryVersion.minor)
        return matches(.libraryDescription, module.libraryDescription)
            && matches(.libraryManufacturer, module.manufacturerID)
            && (libraryVersion.map { $0 == version } ?? true)
    }

    func matches(_ slot: CK_SLOT_INFO, _ token: CK_TOKEN_INFO) -> Bool {
        matches(.slotDescription, slot.slotDescription) && matches(.slotManufacturer, slot.manufacturerID)
            && matches(token)
    }

    func matches(_ slot: Slot) -> Bool { matches(slot.token) }

    private func matches(_ token: CK_TOKEN_INFO) -> Bool {
        matches(.model, token.model) && matches(.manufacturer, token.manufacturerID)
            && matches(.serial, token.serialNumber) && matches(.token, token.label)
    }

    private func matches<Value>(_ field: Field, _ value: Value) -> Bool {
        fields[field].map { $0 == bytes(ofField: value) } ?? true
    }

    /// Whether another URI, of a key say, names the token that this one means.
    func meansToken(of other: PKCS11URI) -> Bool {
        [.model, .manufacturer, .serial, .token].allSatisfy { fields[$0] == nil || fields[$0] == other.fields[$0] }
    }

    /// Whether the URI says which token is meant, and not only which kind.
    var namesToken: Bool {
        fields[.token] != nil || fields[.serial] != nil || (fields[.model] != nil && fields[.manufacturer] != nil)
    }

    /// Whether it says which object on a token is meant.
    var namesObject: Bool { objectID != nil || objectLabel != nil }

    /// Whether it may mean an identity: a certificate, or its private key.
    var meansIdentity: Bool { objectClass.map { $0 == CKO_CERTIFICATE || $0 == CKO_PRIVATE_KEY } ?? true }

    // MARK: Writing

    /// The values of `type`.
    static let classes: [String: CK_OBJECT_CLASS] = [
        "cert": CKO_CERTIFICATE, "data": CKO_DATA, "private": CKO_PRIVATE_KEY, "public": CKO_PUBLIC_KEY,
        "secret-key": CKO_SECRET_KEY,
    ]

    /// Returns the URI of an object on a token.
    ///
    /// - Parameters:
    ///   - objectClass: Any class, if this is `nil`.
    ///   - id: `CKA_ID`; not written if it is empty.
    ///   - label: `CKA_LABEL`; not written if it is empty.
    static func text(
        of token: CK_TOKEN_INFO, class objectClass: CK_OBJECT_CLASS? = nil, id: [UInt8] = [], label: [UInt8] = []
    ) -> String {
        var attributes = [
            "model=" + encoded(bytes(ofField: token.model)),
            "manufacturer=" + encoded(bytes(ofField: token.manufacturerID)),
            "serial=" + encoded(bytes(ofField: token.serialNumber)), "token=" + encoded(bytes(ofField: token.label)),
        ]
        // An id is bytes, and never a text (RFC 7512, section 2.3).
        if !id.isEmpty { attributes.append("id=" + ByteText.percentEncoded(id) { _ in false }) }
        if !label.isEmpty { attributes.append("object=" + encoded(label)) }
        if let type = classes.first(where: { $0.value == objectClass })?.key { attributes.append("type=" + type) }
        return "pkcs11:" + attributes.joined(separator: ";")
    }

    private static func encoded(_ bytes: [UInt8]) -> String {
        ByteText.percentEncoded(bytes) { ByteText.isUnreserved($0) && $0 != UInt8(ascii: "~") }
    }
}
