import CertificateProviding

/// The appearance of a visible signature: texts, one below the other, in a size that fits.
struct SignatureAppearance {
    /// In points: the largest and the smallest font size, and the margin at all four sides.
    private static let largest = 12.0, smallest = 1.0, margin = 2.0
    /// Of a line, and of its part above the base line, in font sizes.
    private static let leading = 1.2, ascent = 0.95

    private let box: SignatureBox
    private let lines: [ArraySlice<UInt8>]
    private let size: Double

    /// Text that does not fit in the smallest size is cut off.
    init(_ texts: [String], in box: SignatureBox) {
        let texts = texts.map(HelveticaText.init)
        let (width, height) = (box.shownWidth - 2 * Self.margin, box.shownHeight - 2 * Self.margin)
        var (size, lines): (Double, [ArraySlice<UInt8>]) = (Self.largest, [])
        while true {
            lines = texts.flatMap { $0.lines(width: Int(width * 1000 / size)) }
            if Double(lines.count) * size * Self.leading <= height || size <= Self.smallest { break }
            size = max(Self.smallest, size * 0.9)
        }
        (self.box, self.size) = (box, size)
        self.lines = Array(lines.prefix(Int(height / (size * Self.leading) + 0.001)))
    }

    /// The form XObject.
    func object(font: PDFReference) -> String {
        let (width, height) = (box.shownWidth.pdfText, box.shownHeight.pdfText)
        let top = (box.shownHeight + Double(lines.count) * size * Self.leading) / 2 - Self.ascent * size
        let content =
            "q 0 0 \(width) \(height) re W n BT 0 g /F \(size.pdfText) Tf \((size * Self.leading).pdfText) TL "
            + "\(Self.margin.pdfText) \(top.pdfText) Td "
            + lines.map { "<\(Array($0).hexEncoded)> Tj T* " }.joined() + "ET Q"
        return "<< /Type /XObject /Subtype /Form /BBox [0 0 \(width) \(height)] /Matrix ["
            + box.matrix.map(\.pdfText).joined(separator: " ")
            + "] /Resources << /Font << /F \(font) R >> >> /Length \(content.utf8.count) >>\nstream\n\(content)\nendstream"
    }
}
