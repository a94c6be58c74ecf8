import CertificateProviding

/// A rectangle in points. The lower left corner is the origin.
package struct PDFRectangle: Sendable {
    package var x, y, width, height: Double

    package init(x: Double, y: Double, width: Double, height: Double) {
        (self.x, self.y, self.width, self.height) = (x, y, width, height)
    }
}

/// The rectangle of a visible signature on its page.
struct SignatureBox: Sendable {
    /// The smallest that gets an appearance, as it is shown.
    static let minimum = (width: 20.0, height: 8.0)

    /// In the coordinates of the page.
    let rectangle: PDFRectangle
    /// How often the page is turned clockwise by 90 degrees when it is shown.
    let turns: Int

    /// A widget's rectangle.
    init(_ rectangle: PDFRectangle, turns: Int) { (self.rectangle, self.turns) = (rectangle, turns) }

    /// A rectangle as it is shown, from the lower left corner of the page as it is shown.
    init(_ shown: PDFRectangle, on page: PDFPage, _ reader: inout PDFReader) throws(ProviderError) {
        let (box, turns) = (try page.box(&reader), try page.turns(&reader))
        let whole = SignatureBox(box, turns: turns)
        guard shown.x >= 0, shown.y >= 0, shown.x + shown.width <= whole.shownWidth,
            shown.y + shown.height <= whole.shownHeight
        else {
            throw ProviderError(
                .documentNotSignable,
                "The rectangle of the visible signature is outside of page \(page.number), which is "
                    + "\(whole.shownWidth.pdfText) points wide and \(whole.shownHeight.pdfText) high. Name one within it."
            )
        }
        let matrix = whole.matrix
        func point(_ x: Double, _ y: Double) -> (x: Double, y: Double) {
            (
                box.x + matrix[0] * x + matrix[2] * y + matrix[4],
                box.y + matrix[1] * x + matrix[3] * y + matrix[5]
            )
        }
        let (one, other) = (point(shown.x, shown.y), point(shown.x + shown.width, shown.y + shown.height))
        self.init(PDFRectangle(one.x, one.y, other.x, other.y), turns: turns)
    }

    var shownWidth: Double { turns.isMultiple(of: 2) ? rectangle.width : rectangle.height }
    var shownHeight: Double { turns.isMultiple(of: 2) ? rectangle.height : rectangle.width }
    var isLargeEnough: Bool { shownWidth >= Self.minimum.width && shownHeight >= Self.minimum.height }

    /// Turns an upright drawing so that it is upright on the page as it is shown.
    var matrix: [Double] {
        switch turns {
        case 1: [0, 1, -1, 0, rectangle.width, 0]
        case 2: [-1, 0, 0, -1, rectangle.width, rectangle.height]
        case 3: [0, -1, 1, 0, 0, rectangle.height]
        default: [1, 0, 0, 1, 0, 0]
        }
    }

    /// The corners, as in `/Rect`.
    var corners: String {
        [rectangle.x, rectangle.y, rectangle.x + rectangle.width, rectangle.y + rectangle.height].map(\.pdfText)
            .joined(separator: " ")
    }
}

extension PDFRectangle {
    /// Between two corners, in any order.
    fileprivate init(_ x: Double, _ y: Double, _ otherX: Double, _ otherY: Double) {
        self.init(x: min(x, otherX), y: min(y, otherY), width: abs(otherX - x), height: abs(otherY - y))
    }
}

extension Double {
    /// As PDF has it: without an exponent.
    var pdfText: String {
        let thousandths = Int((self * 1000).rounded())
        let (whole, rest) = abs(thousandths).quotientAndRemainder(dividingBy: 1000)
        let fraction = String(1000 + rest).dropFirst()
        return (thousandths < 0 ? "-" : "") + "\(whole)" + (rest == 0 ? "" : ".\(fraction)")
    }
}

extension PDFPage {
    /// Its shown part: the crop box, as far as it is in the media box.
    fileprivate func box(_ reader: inout PDFReader) throws(ProviderError) -> PDFRectangle {
        guard let place = inherited["MediaBox"], let media = try reader.rectangle(place) else {
            throw PDFReader.damaged(object, "the page has no /MediaBox")
        }
        guard let place = inherited["CropBox"], let crop = try reader.rectangle(place) else { return media }
        let (left, right) = (max(media.x, crop.x), min(media.x + media.width, crop.x + crop.width))
        let (bottom, top) = (max(media.y, crop.y), min(media.y + media.height, crop.y + crop.height))
        return left < right && bottom < top ? PDFRectangle(left, bottom, right, top) : media
    }

    fileprivate func turns(_ reader: inout PDFReader) throws(ProviderError) -> Int {
        guard let place = inherited["Rotate"], let degrees = try reader.number(place),
            let degrees = Int(exactly: degrees)
        else { return 0 }
        return degrees.isMultiple(of: 90) ? (degrees / 90 % 4 + 4) % 4 : 0
    }
}

extension PDFReader {
    /// The largest number of a rectangle.
    private static let maximumCoordinate = 1e7

    /// A number of either kind; `nil` for anything else.
    fileprivate mutating func number(_ place: PDFPlace) throws(ProviderError) -> Double? {
        guard let place = try resolve(place.value, in: place.object) else { return nil }
        let number: Double? =
            switch place.value.content {
            case .integer(let number): Double(number)
            case .real: Double(String(decoding: place.bytes, as: UTF8.self))
            default: nil
            }
        return number.flatMap { abs($0) <= Self.maximumCoordinate ? $0 : nil }
    }

    /// A rectangle; `nil` for anything else.
    fileprivate mutating func rectangle(_ place: PDFPlace) throws(ProviderError) -> PDFRectangle? {
        guard let array = try resolve(place.value, in: place.object), case .array(let values) = array.value.content,
            values.count == 4
        else { return nil }
        var numbers: [Double] = []
        for value in values {
            guard let number = try number(PDFPlace(array.object, value)) else { return nil }
            numbers.append(number)
        }
        return PDFRectangle(numbers[0], numbers[1], numbers[2], numbers[3])
    }

    /// The widgets of a field that are seen on a page: the field itself, or its kids.
    ///
    /// - Parameter hasKids: Whether kids count. pyHanko permits no change of one behind a signature.
    mutating func visibleWidgets(
        of field: PDFPlace, hasKids: Bool, _ catalog: PDFPlace
    ) throws(ProviderError) -> [(widget: PDFPlace, box: SignatureBox)] {
        /// Flags of an annotation (ISO 32000-2, table 167).
        let (hidden, doesNotTurn) = (1 << 1 | 1 << 5, 1 << 4)
        var widgets = [field.object.reference: field]
        if hasKids, let kids = try entry("Kids", of: field, as: .array) {
            for value in kids.value {
                // A kid with a name is another field.
                guard case .reference(let reference) = value.content,
                    let kid = try resolve(value, in: kids.place.object), try Self.directEntry("T", of: kid) == nil
                else { continue }
                widgets[reference] = kid
            }
        }
        var sized: [PDFReference: (widget: PDFPlace, rectangle: PDFRectangle, flags: Int)] = [:]
        for (reference, widget) in widgets {
            guard let value = try Self.directEntry("Rect", of: widget),
                let rectangle = try rectangle(PDFPlace(widget.object, value)), rectangle.width > 0,
                rectangle.height > 0
            else { continue }
            let flags = try entry("F", of: widget, as: .integer)?.value ?? 0
            if flags & hidden == 0 { sized[reference] = (widget, rectangle, flags) }
        }
        var (found, tree): ([(PDFPlace, SignatureBox)], PageTree) = ([], try PageTree(of: catalog))
        while !sized.isEmpty, let page = try tree.next(&self) {
            guard let value = try Self.directEntry("Annots", of: PDFPlace(page.object)),
                let array = try resolve(value, in: page.object), case .array(let values) = array.value.content
            else { continue }
            for case .reference(let reference) in values.map(\.content) {
                guard let (widget, rectangle, flags) = sized.removeValue(forKey: reference) else { continue }
                let turns = flags & doesNotTurn == 0 ? try page.turns(&self) : 0
                let box = SignatureBox(rectangle, turns: turns)
                if box.isLargeEnough { found.append((widget, box)) }
            }
        }
        return found
    }
}
