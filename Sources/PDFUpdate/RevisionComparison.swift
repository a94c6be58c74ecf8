import CertificateProviding

/// Compares the shown content of two revisions of a document: all that can be reached from the two catalogs.
///
/// The form and the pages come first, where an update for a signature changes something: a field at the end of `/Fields`, its widget at the end of
/// a page's `/Annots`, the value of an empty signature field. Then everything else, which must be the same.
struct RevisionComparison {
    typealias Change = PDFLaterRevisions.Change

    /// The place of a value in the document, which says what may change there.
    private enum Role: Hashable {
        case form, fields, pages, annotations
        /// A field or widget of a type, and whether its field has got another value.
        case field(type: String?, isChanged: Bool)
        /// Anything else, and what a change of it is.
        case content(Change)
    }

    private struct Pair {
        var old, new: PDFPlace?
        var role: Role
        /// The key of the entry, for messages.
        var key: String
    }

    private struct Visited: Hashable {
        var old: PDFReference
        var role: Role
    }

    private var old: PDFReader
    private var new: PDFReader
    /// The signatures that came later.
    private let signatures: Set<PDFReference>
    private(set) var change = Change.nothing
    private(set) var reason: String?
    private var structure: [Pair] = []
    private var content: [Pair] = []
    /// The new object of each old one, by its role.
    private var visited: [Visited: PDFReference] = [:]
    /// The catalog, pages and fields, which other objects refer to.
    private var compared: Set<PDFReference> = []
    /// The widgets of the signatures.
    private var newWidgets: Set<PDFReference> = []

    init(_ old: PDFReader, _ new: PDFReader, signatures: Set<PDFReference>) {
        (self.old, self.new, self.signatures) = (old, new, signatures)
    }

    mutating func run() throws(ProviderError) {
        let (before, after) = (try old.catalog(), try new.catalog())
        guard before.object.reference == after.object.reference else {
            return note(.other, "the catalog", after)
        }
        if after.object.stream == nil { compared.insert(after.object.reference) }
        var rest: [Pair] = []
        var pages: Pair?
        for (key, old, new) in entries(before, after) {
            switch key {
            case "AcroForm": structure.append(Pair(old: old, new: new, role: .form, key: key))
            case "Pages": pages = Pair(old: old, new: new, role: .pages, key: key)
            // Not shown, and readable. A page that has something of it as its content is compared on its own.
            case "DSS", "Extensions", "Metadata":
                if let new, try resolve(new, &self.new) == nil { note(.other, "/\(key)", after) }
            case "Version":
                if case .name(let version)? = new?.value.content, ["1.7", "2.0"].contains(version) { break }
                rest.append(Pair(old: old, new: new, role: .content(.other), key: key))
            default: rest.append(Pair(old: old, new: new, role: .content(.other), key: key))
            }
        }
        while let pair = structure.popLast() { look(at: pair) }
        if let pages { structure.append(pages) }
        while let pair = structure.popLast() { look(at: pair) }
        content += rest
        while change != .other, let pair = content.popLast() { look(at: pair) }
    }

    /// Another reader may repair an object that cannot be read, and in another way in each revision.
    private mutating func look(at pair: Pair) {
        guard change != .other else { return }
        do throws(ProviderError) { try compare(pair) } catch {
            (change, reason) = (.other, "/\(pair.key) cannot be compared: \(error.message)")
        }
    }

    private mutating func note(_ change: Change, _ text: @autoclosure () -> String, _ place: PDFPlace?) {
        guard change > self.change else { return }
        reason = text() + (place.map { " of object \($0.object.reference)" } ?? "") + " was changed"
        self.change = change
    }

    // Values

    private mutating func compare(_ pair: Pair) throws(ProviderError) {
        let change: Change = if case .content(let change) = pair.role { change } else { .other }
        if let one = Self.reference(pair.old), let other = Self.reference(pair.new) {
            // Objects refer back to their page or field.
            if case .content = pair.role, one == other, compared.contains(one), Self.backwards.contains(pair.key) {
                return
            }
            let known = visited.updateValue(other, forKey: Visited(old: one, role: pair.role))
            // Each old object is one new one: else there would be a pair for each two.
            if let known { return known == other ? () : note(change, "/\(pair.key)", pair.new) }
        }
        let before = try pair.old.flatMap { (place) throws(ProviderError) in try resolve(place, &old) }
        guard let after = try pair.new.flatMap({ (place) throws(ProviderError) in try resolve(place, &new) }) else {
            if before != nil { note(change, "/\(pair.key)", pair.new ?? before) }
            return
        }
        if case .form = pair.role { return try compareForm(before, after) }
        guard let before else { return note(change, "/\(pair.key)", after) }
        if before.object.stream != nil || after.object.stream != nil,
            before.value.range == before.object.value.range, after.value.range == after.object.value.range,
            try !hasSameStream(before.object, after.object)
        {
            return note(change, "/\(pair.key), a stream,", after)
        }
        switch (before.value.content, after.value.content, pair.role) {
        case (.array(let one), .array(let other), .fields), (.array(let one), .array(let other), .annotations):
            try compareLists((before, one), (after, other), pair)
        case (.array(let one), .array(let other), let role):
            guard one.count == other.count else { return note(change, "/\(pair.key)", after) }
            for (one, other) in zip(one, other) {
                push(PDFPlace(before.object, one), PDFPlace(after.object, other), role, pair.key)
            }
        case (.dictionary, .dictionary, .field(let type, let isChanged)):
            if let reference = Self.reference(pair.new), after.object.stream == nil { compared.insert(reference) }
            try compareField(before, after, type, isChanged)
        case (.dictionary, .dictionary, .pages):
            if let reference = Self.reference(pair.new), after.object.stream == nil { compared.insert(reference) }
            comparePage(before, after)
        case (.dictionary, .dictionary, let role):
            for (key, one, other) in entries(before, after) { push(one, other, role, key) }
        default:
            // Some programs write a page anew, and 0.0 as 0. Flags are another thing: readers ignore them as a real number.
            let isBox = Self.boxes.contains(pair.key)
            if !Self.isEqual(before, after), !isBox || !Self.isSameNumber(before, after) {
                note(change, "/\(pair.key)", after)
            }
        }
    }

    /// The keys of references to pages and fields, beside the trees of these; /Data of an earlier signature that locks fields is the catalog.
    private static let backwards: Set = [
        "Parent", "P", "Pg", "Obj", "D", "Dest", "Dests", "Names", "OpenAction", "Annots", "CO", "Data",
    ]

    private mutating func push(_ old: PDFPlace?, _ new: PDFPlace?, _ role: Role, _ key: String) {
        let pair = Pair(old: old, new: new, role: role, key: key)
        if case .content = role { content.append(pair) } else { structure.append(pair) }
    }

    /// The entries of two dictionaries by their keys, without those that are null.
    private func entries(
        _ old: PDFPlace, _ new: PDFPlace
    ) -> [(key: String, old: PDFPlace?, new: PDFPlace?)] {
        let (before, after) = (Self.entries(of: old), Self.entries(of: new))
        return Set(before.keys).union(after.keys).sorted().map { key in
            (
                String(key.prefix { $0 != " " }), before[key].map { PDFPlace(old.object, $0) },
                after[key].map { PDFPlace(new.object, $0) }
            )
        }
    }

    private static func entries(of place: PDFPlace) -> [String: PDFValue] {
        guard case .dictionary(let list) = place.value.content else { return [:] }
        var entries: [String: PDFValue] = [:]
        for (name, value) in list {
            if case .null = value.content { continue }
            // Readers take the first or the last of two values: both count.
            var key = name
            while entries[key] != nil { key += " " }
            entries[key] = value
        }
        return entries
    }

    private static func reference(_ place: PDFPlace?) -> PDFReference? {
        if case .reference(let reference)? = place?.value.content { reference } else { nil }
    }

    private func resolve(_ place: PDFPlace, _ reader: inout PDFReader) throws(ProviderError) -> PDFPlace? {
        try reader.resolve(place.value, in: place.object)
    }

    private mutating func hasSameStream(_ one: PDFObject, _ other: PDFObject) throws(ProviderError) -> Bool {
        guard one.stream != nil, other.stream != nil else { return false }
        // In the earlier revision it must end before that does.
        let (range, other) = (try old.streamRange(of: one), try new.streamRange(of: other))
        if range == other { return true }
        guard range.count == other.count else { return false }
        for start in stride(from: 0, to: range.count, by: 1 << 20) {
            let size = min(1 << 20, range.count - start)
            let (place, otherPlace) = (range.lowerBound + start, other.lowerBound + start)
            guard
                try old.source.bytes(place..<(place + size)) == new.source.bytes(otherPlace..<(otherPlace + size))
            else { return false }
        }
        return true
    }

    private static func isEqual(_ one: PDFPlace, _ other: PDFPlace) -> Bool {
        switch (one.value.content, other.value.content) {
        case (.boolean(let one), .boolean(let other)): one == other
        case (.integer(let one), .integer(let other)): one == other
        case (.name(let one), .name(let other)): one == other
        case (.string(let one), .string(let other)): one == other
        case (.null, .null): true
        default: one.bytes.elementsEqual(other.bytes)
        }
    }

    private static let boxes: Set = ["MediaBox", "CropBox", "BleedBox", "TrimBox", "ArtBox", "Rect"]

    private static func isSameNumber(_ one: PDFPlace, _ other: PDFPlace) -> Bool {
        func number(_ place: PDFPlace) -> Double? { Double(String(decoding: place.bytes, as: UTF8.self)) }
        return number(one).map { $0.isFinite && $0 == number(other) } ?? false
    }

    /// Whether an entry differs, without a look into objects of the same place.
    private mutating func differs(_ old: PDFPlace?, _ new: PDFPlace?) throws(ProviderError) -> Bool {
        guard let old, let new else { return old != nil || new != nil }
        guard let one = Self.reference(old), let other = Self.reference(new) else { return !Self.isEqual(old, new) }
        guard one == other, let before = try resolve(old, &self.old), let after = try resolve(new, &self.new) else {
            return true
        }
        return !before.bytes.elementsEqual(after.bytes)
    }

    // The form

    private mutating func compareForm(_ old: PDFPlace?, _ new: PDFPlace) throws(ProviderError) {
        let none = PDFPlace(new.object, PDFValue(content: .dictionary([]), range: new.value.range))
        for (key, one, other) in entries(old ?? none, new) {
            switch key {
            case "Fields":
                // A form that came later has fields that came later.
                push(one ?? Self.emptyList(new), other, .fields, key)
            case "SigFlags":
                if case .integer? = other?.value.content { break }
                note(.other, "/\(key)", new)
            // Without them before, no field was shown by them.
            case "DR" where one == nil, "DA" where one == nil: break
            case "NeedAppearances":
                if one == nil, case .boolean(false)? = other?.value.content { break }
                push(one, other, .content(.formValues), key)
            case "DR", "DA": push(one, other, .content(.formValues), key)
            default: push(one, other, .content(.other), key)
            }
        }
    }

    private static func emptyList(_ place: PDFPlace) -> PDFPlace {
        PDFPlace(place.object, PDFValue(content: .array([]), range: place.value.range))
    }

    /// Compares lists at whose end an update for a signature puts its field or widget.
    private mutating func compareLists(
        _ old: (place: PDFPlace, values: [PDFValue]), _ new: (place: PDFPlace, values: [PDFValue]), _ pair: Pair
    ) throws(ProviderError) {
        guard old.values.count <= new.values.count else { return note(.other, "/\(pair.key)", new.place) }
        let isFields = pair.role == .fields
        for (one, other) in zip(old.values, new.values) {
            push(
                PDFPlace(old.place.object, one), PDFPlace(new.place.object, other),
                isFields ? .field(type: nil, isChanged: false) : .content(.other), pair.key)
        }
        for value in new.values.dropFirst(old.values.count) {
            let place = PDFPlace(new.place.object, value)
            let isOfSignature =
                isFields ? try takeNewField(place) : Self.reference(place).map(newWidgets.contains) ?? false
            if !isOfSignature { note(.other, "/\(pair.key)", new.place) }
        }
    }

    /// The entries of a field of a signature, and of its widget.
    private static let fieldKeys: Set = [
        "Type", "Subtype", "FT", "T", "TU", "V", "Rect", "F", "P", "AP", "Ff", "Lock", "SV", "Parent", "Kids", "DA",
        "DR", "M", "NM", "MK",
    ]

    /// Whether a field that came later is that of a signature that did, which signs the bytes in front of it.
    private mutating func takeNewField(_ place: PDFPlace) throws(ProviderError) -> Bool {
        guard let reference = Self.reference(place), let field = try resolve(place, &new),
            case .dictionary = field.value.content, try new.entry("FT", of: field, as: .name)?.value == "Sig",
            try isSignature(PDFReader.directEntry("V", of: field), of: field)
        else { return false }
        var widgets = [(reference, field)]
        if let kids = try new.entry("Kids", of: field, as: .array) {
            for kid in kids.value {
                guard case .reference(let widget) = kid.content,
                    let kid = try resolve(PDFPlace(kids.place.object, kid), &new)
                else { return false }
                widgets.append((widget, kid))
            }
        }
        for (reference, widget) in widgets {
            guard case .dictionary(let entries) = widget.value.content,
                entries.allSatisfy({ Self.fieldKeys.contains($0.name) }),
                try new.entry("Subtype", of: widget, as: .name)?.value ?? "Widget" == "Widget"
            else { return false }
            // A viewer makes an appearance of /MK where there is none.
            let names = Set(entries.map(\.name))
            guard names.contains("AP") || !names.contains("MK") else { return false }
            newWidgets.insert(reference)
            try noteAppearance(of: widget)
        }
        return true
    }

    private func isSignature(_ value: PDFValue?, of field: PDFPlace) -> Bool {
        switch value?.content {
        case .reference(let reference): signatures.contains(reference)
        case .dictionary: signatures.contains(field.object.reference)
        default: false
        }
    }

    /// A later signature that is seen is said: it may cover signed content.
    private mutating func noteAppearance(of widget: PDFPlace) throws(ProviderError) {
        guard reason == nil, try PDFReader.directEntry("AP", of: widget) != nil,
            let rectangle = try new.entry("Rect", of: widget, as: .array)?.value,
            rectangle.contains(where: { if case .integer(0) = $0.content { false } else { true } })
        else { return }
        reason = "a signature that came later is seen on a page"
    }

    private mutating func compareField(
        _ old: PDFPlace, _ new: PDFPlace, _ inherited: String?, _ isInherited: Bool
    ) throws(ProviderError) {
        let type = try self.new.entry("FT", of: new, as: .name)?.value ?? inherited
        let entries = entries(old, new)
        func entry(_ key: String) -> (old: PDFPlace?, new: PDFPlace?) {
            entries.first { $0.key == key }.map { ($0.old, $0.new) } ?? (nil, nil)
        }
        let isSignature = type == "Sig"
        var isChanged = isInherited
        if isSignature {
            // An empty field that was signed.
            let value = entry("V")
            isChanged = isChanged || (value.old == nil && self.isSignature(value.new?.value, of: new))
            if isChanged { try noteAppearance(of: new) }
        } else {
            for key in ["V", "AS", "I"] where !isChanged { isChanged = try differs(entry(key).old, entry(key).new) }
        }
        for (key, one, other) in entries {
            switch key {
            case "Kids": push(one, other, .field(type: type, isChanged: isChanged), key)
            case "V" where isSignature && one == nil && isChanged: break
            case "AP", "AS", "F", "M":
                if isSignature && isChanged { break }
                let isValue = !isSignature && isChanged && key != "F"
                push(one, other, .content(isValue || key == "M" ? .formValues : .other), key)
            case "V", "RV", "I": push(one, other, .content(isSignature ? .other : .formValues), key)
            default: push(one, other, .content(.other), key)
            }
        }
    }

    // The pages

    private mutating func comparePage(_ old: PDFPlace, _ new: PDFPlace) {
        let entries = entries(old, new)
        let isNode = entries.contains { $0.key == "Kids" }
        for (key, one, other) in entries {
            switch key {
            case "Kids": push(one, other, .pages, key)
            case "Annots" where !isNode: push(one ?? Self.emptyList(new), other, .annotations, key)
            default: push(one, other, .content(.other), key)
            }
        }
    }
}
