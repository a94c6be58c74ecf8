/// The number and the generation of an object.
struct PDFReference: Hashable, Sendable, CustomStringConvertible {
    var number, generation: Int
    var description: String { "\(number) \(generation)" }
}

/// A value, and where it stands in the bytes of its object. Nothing is ever written from it: an update copies the bytes.
struct PDFValue: Sendable {
    enum Content: Sendable {
        case null, real
        case boolean(Bool)
        case integer(Int)
        case name(String)
        case string([UInt8])
        case reference(PDFReference)
        case array([PDFValue])
        case dictionary([(name: String, value: PDFValue)])
    }
    var content: Content
    var range: Range<Int>
}

/// An object: its bytes without `obj` and `endobj`, which an update copies, and its value, whose ranges are theirs.
struct PDFObject: Sendable {
    var reference: PDFReference
    var bytes: ArraySlice<UInt8>
    var value: PDFValue
    /// The start of its stream in the file, if it has one.
    var stream: Int?
    /// Behind `endobj`, or behind `stream`; 0 in an object stream.
    var end = 0
}

/// A value in its object.
struct PDFPlace: Sendable {
    var object: PDFObject
    var value: PDFValue

    init(_ object: PDFObject, _ value: PDFValue) { (self.object, self.value) = (object, value) }
    init(_ object: PDFObject) { self.init(object, object.value) }

    var bytes: ArraySlice<UInt8> { object.bytes[value.range] }
}

/// A type of values, by which entries are read.
struct PDFKind<Value> {
    /// With its article, for messages.
    let name: String
    let get: (PDFValue.Content) -> Value?
}

extension PDFKind<Bool> {
    static var boolean: Self { Self(name: "a boolean") { if case .boolean(let value) = $0 { value } else { nil } } }
}
extension PDFKind<Int> {
    static var integer: Self { Self(name: "an integer") { if case .integer(let value) = $0 { value } else { nil } } }
}
extension PDFKind<String> {
    static var name: Self { Self(name: "a name") { if case .name(let value) = $0 { value } else { nil } } }
}
extension PDFKind<[UInt8]> {
    static var string: Self { Self(name: "a string") { if case .string(let value) = $0 { value } else { nil } } }
}
extension PDFKind<[PDFValue]> {
    static var array: Self { Self(name: "an array") { if case .array(let value) = $0 { value } else { nil } } }
}
extension PDFKind<[(name: String, value: PDFValue)]> {
    static var dictionary: Self {
        Self(name: "a dictionary") { if case .dictionary(let value) = $0 { value } else { nil } }
    }
}
