import CertificateProviding

/// A document's form, as far as signatures need it: its names, its signature fields, and what earlier signatures forbid.
struct FormFields {
    /// The most fields and widgets, and how deep they may be nested.
    static let maximumCount = 1 << 18, maximumDepth = 64

    /// The entries that a field has of its own or from its parents.
    private struct Inherited {
        var name = ""
        var type: String?
        var value: PDFPlace?
        var lock: PDFPlace?
        var text: PDFPlace?
        var flags = 0
    }

    /// The full name of the field that is asked for.
    private let wanted: String?
    /// The field of that name, if it is a signature field, and whether it has a value.
    private var found: (field: PDFPlace, isSigned: Bool)?
    /// The signatures, each with the full name of its field.
    private(set) var signatures: [(name: String, value: PDFPlace)] = []
    /// The text fields and widgets that have appearances, and the values as they stand there.
    private(set) var texts: [(name: String, value: PDFPlace?, appearances: PDFPlace, flags: Int)] = []
    /// The objects that have the signatures.
    private var signed: Set<PDFReference> = []
    /// Whether a signature field has a value.
    var isSigned: Bool { !signatures.isEmpty }
    /// The error when an earlier signature permits no other one.
    private(set) var closure: ProviderError?
    /// The error when an earlier signature covers bytes that are not there.
    private(set) var damage: ProviderError?
    /// The names of all fields without those of their parents.
    private var names: Set<String> = []
    /// The full names of the fields that earlier signatures have locked.
    private var locked: Set<String> = []
    /// Whether each object that was met is still above the current one.
    private var isOpen: [PDFReference: Bool] = [:]

    /// Reads the whole tree of fields.
    init(
        _ form: PDFPlace?, of catalog: PDFPlace, wanted: String?, _ reader: inout PDFReader
    ) throws(ProviderError) {
        self.wanted = wanted
        if let permissions = try reader.entry("Perms", of: catalog, as: .dictionary)?.place,
            let certification = try reader.entry("DocMDP", of: permissions, as: .dictionary)?.place
        {
            try look(at: certification, in: "the catalog", &reader)
        }
        guard let form, let fields = try reader.entry("Fields", of: form, as: .array) else { return }
        for value in fields.value { try visit(value, in: fields.place.object, Inherited(), depth: 0, &reader) }
    }

    private mutating func visit(
        _ value: PDFValue, in holder: PDFObject, _ parent: Inherited, depth: Int, _ reader: inout PDFReader
    ) throws(ProviderError) {
        guard depth < Self.maximumDepth, isOpen.count < Self.maximumCount else {
            throw PDFReader.damaged(holder, "the tree of fields is too deep or too large")
        }
        var reference: PDFReference?
        if case .reference(let named) = value.content {
            // Widgets of a field are often fields of the form too.
            if let isOpen = isOpen[named] {
                guard !isOpen else { throw PDFReader.damaged(holder, "the tree of fields has a loop") }
                return
            }
            (reference, isOpen[named]) = (named, true)
        }
        guard let field = try reader.resolve(value, in: holder) else { return }
        var own = parent
        let partial = try reader.entry("T", of: field, as: .string).map { Self.text($0.value) }
        if let partial {
            own.name += (own.name.isEmpty ? "" : ".") + partial
            try reader.spend(own.name.utf8.count)
            names.insert(partial)
        }
        own.type = try reader.entry("FT", of: field, as: .name)?.value ?? own.type
        own.lock = try reader.entry("Lock", of: field, as: .dictionary)?.place ?? own.lock
        if own.type == "Sig" {
            let value = try reader.entry("V", of: field, as: .dictionary)?.place
            if let value {
                guard signed.insert(value.object.reference).inserted else {
                    throw PDFReader.damaged(field.object, "two fields have one signature")
                }
                signatures.append((own.name, value))
            }
            own.value = value ?? own.value
            if partial != nil, own.name == wanted { found = (field, own.value != nil) }
            if let signature = own.value {
                if let lock = own.lock, try reader.entry("P", of: lock, as: .integer)?.value == 1 {
                    close("the field \(own.name) has a lock with P 1")
                }
                try look(at: signature, in: "the field \(own.name)", &reader)
            }
        }
        if own.type == "Tx" { noteText(field, &own, &reader) }
        if let kids = try reader.entry("Kids", of: field, as: .array) {
            for kid in kids.value { try visit(kid, in: kids.place.object, own, depth: depth + 1, &reader) }
        }
        if let reference { isOpen[reference] = false }
    }

    /// A text field that cannot be read is none of a signature's business.
    private mutating func noteText(_ field: PDFPlace, _ own: inout Inherited, _ reader: inout PDFReader) {
        if let value = try? PDFReader.directEntry("V", of: field) { own.text = PDFPlace(field.object, value) }
        own.flags = (try? reader.entry("Ff", of: field, as: .integer)?.value) ?? own.flags
        if let place = try? reader.entry("AP", of: field, as: .dictionary)?.place {
            texts.append((own.name, own.text, place, own.flags))
        }
    }

    /// Looks for what a signature forbids.
    private mutating func look(
        at signature: PDFPlace, in place: String, _ reader: inout PDFReader
    ) throws(ProviderError) {
        if let end = try reader.integers("ByteRange", of: signature)?.suffix(2).reduce(
            0, { $0.addingReportingOverflow($1).partialValue }),
            end > reader.source.count
        {
            damage =
                damage
                ?? PDFReader.damaged(
                    signature.object, "the signature in \(place) covers bytes beyond the end of the file")
        }
        guard let list = try reader.entry("Reference", of: signature, as: .array) else { return }
        for value in list.value {
            guard let reference = try reader.resolve(value, in: list.place.object) else { continue }
            let method = try reader.entry("TransformMethod", of: reference, as: .name)?.value
            guard method == "DocMDP" || method == "FieldMDP" else { continue }
            let parameters = try reader.entry("TransformParams", of: reference, as: .dictionary)?.place
            if let parameters, try reader.entry("P", of: parameters, as: .integer)?.value == 1 {
                close("the signature in \(place) has \(method ?? "") with P 1")
            }
            guard method == "FieldMDP" else { continue }
            guard let parameters, try reader.entry("Action", of: parameters, as: .name)?.value == "Include" else {
                close("the signature in \(place) locks all fields but those that it names, if any")
                continue
            }
            guard let fields = try reader.entry("Fields", of: parameters, as: .array) else { continue }
            for value in fields.value {
                guard case .string(let name)? = try reader.resolve(value, in: fields.place.object)?.value.content else {
                    throw PDFReader.damaged(fields.place.object, "a name of a locked field is not a string")
                }
                locked.insert(Self.text(name))
            }
        }
    }

    /// The empty signature field that is asked for, if it takes such a signature.
    func field(
        _ name: String, for request: PDFSignatureRequest, _ reader: inout PDFReader
    ) throws(ProviderError) -> PDFPlace {
        guard let found, !found.isSigned else {
            let reason =
                found == nil ? "has no signature field \(name)" : "has a signature in the field \(name) already"
            throw ProviderError(
                .documentNotSignable, "The PDF \(reason). Name an empty signature field, or none for a new one.")
        }
        let field = found.field
        guard !locked.contains(where: { name == $0 || name.hasPrefix($0 + ".") }) else {
            throw Self.closed("an earlier signature has locked the field \(name)")
        }
        guard try reader.entry("Lock", of: field, as: .dictionary) == nil else {
            throw ProviderError(
                .documentNotSignable,
                "The signature field \(name) of the PDF has a lock: a signature in it would have to forbid changes. "
                    + "Name another field, or none for a new one.")
        }
        if let seed = try reader.entry("SV", of: field, as: .dictionary)?.place {
            try SeedValues.check(seed, for: request, of: name, &reader)
        }
        return field
    }

    /// A name for a new field.
    func freeName() -> String {
        (1...).lazy.map { "Signature\($0)" }.first { !names.contains($0) && !locked.contains($0) } ?? ""
    }

    private mutating func close(_ reason: String) { closure = closure ?? Self.closed(reason) }

    static func closed(_ reason: String) -> ProviderError {
        ProviderError(
            .documentNotSignable,
            "The PDF permits no further signature: \(reason). Another one would make that invalid. Sign a copy without it, "
                + "or the file as it is with certprov sign cms.")
    }

    /// A text string, well enough to compare names.
    static func text(_ bytes: [UInt8]) -> String {
        if bytes.starts(with: [0xfe, 0xff]) {
            let units = stride(from: 2, to: bytes.count - 1, by: 2).map {
                UInt16(bytes[$0]) << 8 | UInt16(bytes[$0 + 1])
            }
            return String(decoding: units, as: UTF16.self)
        }
        if bytes.starts(with: [0xef, 0xbb, 0xbf]) { return String(decoding: bytes.dropFirst(3), as: UTF8.self) }
        return String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
    }
}

/// The demands of an empty signature field on its signature (ISO 32000-2, 12.7.5.5).
enum SeedValues {
    /// The flags in `/Ff`, by which an entry is a requirement, and the entries.
    private static let flags: [(bit: Int, name: String)] = [
        (0, "Filter"), (1, "SubFilter"), (2, "V"), (3, "Reasons"), (4, "LegalAttestation"), (5, "AddRevInfo"),
        (6, "DigestMethod"), (7, "LockDocument"), (8, "AppearanceFilter"),
    ]

    static func check(
        _ seed: PDFPlace, for request: PDFSignatureRequest, of field: String, _ reader: inout PDFReader
    ) throws(ProviderError) {
        let required = try reader.entry("Ff", of: seed, as: .integer)?.value ?? 0
        for (bit, name) in flags where required >> bit & 1 == 1 {
            let isKept =
                switch name {
                case "V": try reader.entry(name, of: seed, as: .integer).map { $0.value <= 3 } ?? true
                case "Filter": try reader.entry(name, of: seed, as: .name)?.value == "Adobe.PPKLite"
                case "SubFilter": try values(name, of: seed, &reader).contains("ETSI.CAdES.detached")
                case "Reasons": try isKept(try values(name, of: seed, &reader), by: request.reason)
                default: false
                }
            guard isKept else { throw refusal(name, of: field) }
        }
        // These have flags of their own.
        if let certification = try reader.entry("MDP", of: seed, as: .dictionary)?.place,
            try reader.entry("P", of: certification, as: .integer)?.value ?? 0 != 0
        {
            throw refusal("MDP", of: field)
        }
        for (name, isMet) in [("Cert", false), ("TimeStamp", request.hasTimeStamp)] where !isMet {
            guard let part = try reader.entry(name, of: seed, as: .dictionary)?.place else { continue }
            if try reader.entry("Ff", of: part, as: .integer)?.value ?? 0 != 0 { throw refusal(name, of: field) }
        }
    }

    /// A single full stop means that there must be no reason.
    private static func isKept(_ reasons: [String], by reason: String?) throws(ProviderError) -> Bool {
        reasons.isEmpty || reasons == ["."] ? reason == nil : reason.map(reasons.contains) ?? false
    }

    private static func values(
        _ name: String, of seed: PDFPlace, _ reader: inout PDFReader
    ) throws(ProviderError) -> [String] {
        guard let list = try reader.entry(name, of: seed, as: .array) else { return [] }
        return try list.value.map { (value) throws(ProviderError) in
            switch try reader.resolve(value, in: list.place.object)?.value.content {
            case .name(let name): name
            case .string(let text): FormFields.text(text)
            default: throw PDFReader.damaged(seed.object, "/\(name) has something else than texts")
            }
        }
    }

    private static func refusal(_ name: String, of field: String) -> ProviderError {
        ProviderError(
            .documentNotSignable,
            "The signature field \(field) of the PDF requires a seed value that this signature does not have: /\(name). "
                + "Name another field, or none for a new one.")
    }
}
