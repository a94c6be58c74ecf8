/// A return code of PKCS#11 (`CK_RV`), as far as the socket has it. The page Serving other programs says when.
struct ReturnCode: Error, RawRepresentable, Hashable {
    let rawValue: UInt64

    static let ok = Self(rawValue: 0)
    static let slotIDInvalid = Self(rawValue: 0x03)
    static let argumentsBad = Self(rawValue: 0x07)
    static let noEvent = Self(rawValue: 0x08)
    static let attributeSensitive = Self(rawValue: 0x11)
    static let attributeTypeInvalid = Self(rawValue: 0x12)
    static let dataInvalid = Self(rawValue: 0x20)
    static let dataLengthRange = Self(rawValue: 0x21)
    static let deviceError = Self(rawValue: 0x30)
    static let functionNotSupported = Self(rawValue: 0x54)
    static let keyHandleInvalid = Self(rawValue: 0x60)
    static let keyTypeInconsistent = Self(rawValue: 0x63)
    static let keyFunctionNotPermitted = Self(rawValue: 0x68)
    static let mechanismInvalid = Self(rawValue: 0x70)
    static let mechanismParameterInvalid = Self(rawValue: 0x71)
    static let objectHandleInvalid = Self(rawValue: 0x82)
    static let operationActive = Self(rawValue: 0x90)
    static let operationNotInitialized = Self(rawValue: 0x91)
    static let sessionCount = Self(rawValue: 0xb1)
    static let sessionHandleInvalid = Self(rawValue: 0xb3)
    static let sessionParallelNotSupported = Self(rawValue: 0xb4)
    static let tokenWriteProtected = Self(rawValue: 0xe2)
    static let userNotLoggedIn = Self(rawValue: 0x101)
    static let userPINNotInitialized = Self(rawValue: 0x102)
    static let randomNoRNG = Self(rawValue: 0x121)
    static let bufferTooSmall = Self(rawValue: 0x150)
    static let cryptokiNotInitialized = Self(rawValue: 0x190)
    static let cryptokiAlreadyInitialized = Self(rawValue: 0x191)
}

/// The type of an attribute (`CK_ATTRIBUTE_TYPE`).
struct AttributeType: RawRepresentable, Hashable {
    let rawValue: UInt32

    static let objectClass = Self(rawValue: 0x00)
    static let token = Self(rawValue: 0x01)
    static let isPrivate = Self(rawValue: 0x02)
    static let label = Self(rawValue: 0x03)
    static let value = Self(rawValue: 0x11)
    static let certificateType = Self(rawValue: 0x80)
    static let issuer = Self(rawValue: 0x81)
    static let serialNumber = Self(rawValue: 0x82)
    static let trusted = Self(rawValue: 0x86)
    static let certificateCategory = Self(rawValue: 0x87)
    static let keyType = Self(rawValue: 0x100)
    static let subject = Self(rawValue: 0x101)
    static let id = Self(rawValue: 0x102)
    static let sensitive = Self(rawValue: 0x103)
    static let encrypt = Self(rawValue: 0x104)
    static let decrypt = Self(rawValue: 0x105)
    static let wrap = Self(rawValue: 0x106)
    static let unwrap = Self(rawValue: 0x107)
    static let sign = Self(rawValue: 0x108)
    static let signRecover = Self(rawValue: 0x109)
    static let verify = Self(rawValue: 0x10a)
    static let verifyRecover = Self(rawValue: 0x10b)
    static let derive = Self(rawValue: 0x10c)
    static let startDate = Self(rawValue: 0x110)
    static let endDate = Self(rawValue: 0x111)
    static let modulus = Self(rawValue: 0x120)
    static let modulusBits = Self(rawValue: 0x121)
    static let publicExponent = Self(rawValue: 0x122)
    static let publicKeyInfo = Self(rawValue: 0x129)
    static let extractable = Self(rawValue: 0x162)
    static let local = Self(rawValue: 0x163)
    static let neverExtractable = Self(rawValue: 0x164)
    static let alwaysSensitive = Self(rawValue: 0x165)
    static let modifiable = Self(rawValue: 0x170)
    static let copyable = Self(rawValue: 0x171)
    static let ecParameters = Self(rawValue: 0x180)
    static let ecPoint = Self(rawValue: 0x181)
    static let alwaysAuthenticate = Self(rawValue: 0x202)
    static let wrapWithTrusted = Self(rawValue: 0x210)

    /// The parts of a private key: `CKA_VALUE`, and `CKA_PRIVATE_EXPONENT` to `CKA_COEFFICIENT`.
    var isOfSecret: Bool { self == .value || (0x123...0x128).contains(rawValue) }

    /// How p11-kit's protocol writes a value.
    enum Form { case byte, number, bytes, numbers, template }

    var form: Form {
        switch rawValue {
        case 0x01, 0x02, 0x86, 0x103...0x10c, 0x162...0x165, 0x170, 0x171, 0x200, 0x202, 0x210, 0x301, 0x302, 0x405:
            .byte
        case 0x00, 0x80, 0x87, 0x88, 0x100, 0x121, 0x133, 0x134, 0x160, 0x161, 0x166, 0x201, 0x300, 0x400...0x404,
            0x406, 0x500:
            .number
        case 0x4000_0211...0x4000_0213: .template
        case 0x4000_0600: .numbers
        default: .bytes
        }
    }
}

/// The value of an attribute.
enum AttributeValue: Hashable {
    /// A `CK_BBOOL`.
    case byte(UInt8)
    /// A `CK_ULONG`.
    case number(UInt64)
    case bytes([UInt8])
    /// Mechanisms.
    case numbers([UInt64])

    static func flag(_ flag: Bool) -> Self { .byte(flag ? 1 : 0) }

    /// The size in the memory of the caller, whose `CK_ULONG` has eight bytes.
    var size: Int {
        switch self {
        case .byte: 1
        case .number: 8
        case .bytes(let bytes): bytes.count
        case .numbers(let numbers): 8 * numbers.count
        }
    }
}

/// A mechanism for signatures (`CK_MECHANISM_TYPE`).
enum TokenMechanism: UInt64, CaseIterable {
    case rsaPKCS = 0x01
    case rsaPSS = 0x0d
    case ecdsa = 0x1041
    case eddsa = 0x1057
}
