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
        var old, new: PDFReference
        var change: Change?
    }

    private var old: PDFReader
    private var new: PDFReader
    private(set) var change = Change.nothing
    private(set) var reason: String?
    private var structure: [Pair] = []
    private var content: [Pair] = []
    private var visited: Set<Visited> = []
    /// The widgets of signature fields that came later.
    private var newWidgets: Set<PDFReference> = []

    init(_ old: PDFReader, _ new: PDFReader) { (self.old, self.new) = (old, new) }

    mutating func run() throws(ProviderError) {
        let (before, after) = (try old.catalog(), try new.catalog())
        guard before.object.reference == after.object.reference else {
            return note(.other, "the catalog", after)
        }
        var rest: [Pair] = []
        var pages: Pair?
        for (key, old, new) in entries(before, after) {
            switch key {
            case "AcroForm": structure.append(Pair(old: old, new: new, role: .form, key: key))
            case "Pages": pages = Pair(old: old, new: new, role: .pages, key: key)
            // Not shown. A page that has something of it as its content is compared on its own.
            case "DSS", "Extensions", "Metadata", "Version": break
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
        if change == .other, reason == nil {
            reason = text() + (place.map { " of object \($0.object.reference)" } ?? "") + " was changed"
        }
        self.change = max(self.change, change)
    }

    // Values

    private mutating func compare(_ pair: Pair) throws(ProviderError) {
        let change: Change = if case .content(let change) = pair.role { change } else { .other }
        let references = (Self.reference(pair.old), Self.reference(pair.new))
        var isSame = false
        if let one = references.0, let other = references.1 {
            let isContent = if case .content = pair.role { true } else { false }
            // An object that has been compared as a field or page is not compared as something else.
            if isContent, visited.contains(Visited(old: one, new: other, change: nil)) { return }
            guard visited.insert(Visited(old: one, new: other, change: isContent ? change : nil)).inserted else {
                return
            }
            if one == other { isSame = try hasSameEntry(one) }
        }
        guard let after = try pair.new.flatMap({ (place) throws(ProviderError) in try resolve(place, &new) }) else {
            let before = try pair.old.flatMap { (place) throws(ProviderError) in try resolve(place, &old) }
            if before != nil { note(change, "/\(pair.key)", pair.new ?? before) }
            return
        }
        let resolved =
            try isSame ? after : pair.old.flatMap { (place) throws(ProviderError) in try resolve(place, &old) }
        if case .form = pair.role { return try compareForm(resolved, after) }
        guard let before = resolved else { return note(change, "/\(pair.key)", after) }
        if !isSame, before.object.stream != nil || after.object.stream != nil,
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
            try compareField(before, after, type, isChanged)
        case (.dictionary, .dictionary, .pages): try comparePage(before, after)
        case (.dictionary, .dictionary, let role):
            for (key, one, other) in entries(before, after) { push(one, other, role, key) }
        default:
            guard isSame || Self.isEqual(before, after) else { return note(change, "/\(pair.key)", after) }
        }
    }

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
            (key, before[key].map { PDFPlace(old.object, $0) }, after[key].map { PDFPlace(new.object, $0) })
        }
    }

    private static func entries(of place: PDFPlace) -> [String: PDFValue] {
        guard case .dictionary(let list) = place.value.content else { return [:] }
        var entries: [String: PDFValue] = [:]
        for (index, (name, value)) in list.enumerated() {
            if case .null = value.content { continue }
            // Readers take the first or the last of two values: both count.
            if entries[name] == nil { entries[name] = value } else { entries["\(name) \(index)"] = value }
        }
        return entries
    }

    private static func reference(_ place: PDFPlace?) -> PDFReference? {
        if case .reference(let reference)? = place?.value.content { reference } else { nil }
    }

    private func resolve(_ place: PDFPlace, _ reader: inout PDFReader) throws(ProviderError) -> PDFPlace? {
        try reader.resolve(place.value, in: place.object)
    }

    /// Whether an object stands at the same place in both revisions.
    private mutating func hasSameEntry(_ reference: PDFReference) throws(ProviderError) -> Bool {
        switch (try old.entry(of: reference.number), try new.entry(of: reference.number)) {
        case (.offset(let one, let generation), .offset(let other, let otherGeneration)):
            return one == other && generation == otherGeneration
        case (.inStream(let one), .inStream(let other)):
            guard one == other, case .offset(let place, _)? = try old.entry(of: one),
                case .offset(let otherPlace, _)? = try new.entry(of: one)
            else { return false }
            return place == otherPlace
        default: return false
        }
    }

    private mutating func hasSameStream(_ one: PDFObject, _ other: PDFObject) throws(ProviderError) -> Bool {
        guard one.stream != nil, other.stream != nil else { return false }
        let (range, other) = (try old.streamRange(of: one), try new.streamRange(of: other))
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

    /// Whether an entry differs, without a look below references to objects that are where they were.
    private mutating func differs(_ old: PDFPlace?, _ new: PDFPlace?) throws(ProviderError) -> Bool {
        guard let old, let new else { return old != nil || new != nil }
        if let one = Self.reference(old), let other = Self.reference(new) {
            guard one == other else { return true }
            return try !hasSameEntry(one)
        }
        return !Self.isEqual(old, new)
    }

    // The form

    private mutating func compareForm(_ old: PDFPlace?, _ new: PDFPlace) throws(ProviderError) {
        let none = PDFPlace(new.object, PDFValue(content: .dictionary([]), range: new.value.range))
        for (key, one, other) in entries(old ?? none, new) {
            switch key {
            case "Fields":
                // A form that came later has fields that came later.
                let empty = PDFPlace(new.object, PDFValue(content: .array([]), range: new.value.range))
                push(one ?? empty, other, .fields, key)
            case "SigFlags": break
            case "DR", "DA", "NeedAppearances": push(one, other, .content(.formValues), key)
            default: push(one, other, .content(.other), key)
            }
        }
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

    /// Whether a field that came later is one of a signature, which may be empty if nothing of it is seen.
    private mutating func takeNewField(_ place: PDFPlace) throws(ProviderError) -> Bool {
        guard let reference = Self.reference(place), let field = try resolve(place, &new),
            case .dictionary = field.value.content, try new.entry("FT", of: field, as: .name)?.value == "Sig"
        else { return false }
        let kids = try new.entry("Kids", of: field, as: .array)?.value ?? []
        let isEmpty = try new.entry("V", of: field, as: .dictionary) == nil
        if isEmpty {
            let appearance = try PDFReader.directEntry("AP", of: field)
            guard kids.isEmpty, appearance == nil else { return false }
        }
        newWidgets.insert(reference)
        for kid in kids { if case .reference(let widget) = kid.content { newWidgets.insert(widget) } }
        return true
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
            isChanged = isChanged || (entry("V").old == nil && entry("V").new != nil)
        } else {
            for key in ["V", "AS", "I"] where !isChanged { isChanged = try differs(entry(key).old, entry(key).new) }
        }
        for (key, one, other) in entries {
            switch key {
            case "Kids": push(one, other, .field(type: type, isChanged: isChanged), key)
            case "V" where isSignature && one == nil: break
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

    private mutating func comparePage(_ old: PDFPlace, _ new: PDFPlace) throws(ProviderError) {
        let entries = entries(old, new)
        let isNode = entries.contains { $0.key == "Kids" }
        for (key, one, other) in entries {
            switch key {
            case "Kids": push(one, other, .pages, key)
            case "Annots" where !isNode:
                let empty = PDFPlace(new.object, PDFValue(content: .array([]), range: new.value.range))
                push(one ?? empty, other, .annotations, key)
            default: push(one, other, .content(.other), key)
            }
        }
    }
}
