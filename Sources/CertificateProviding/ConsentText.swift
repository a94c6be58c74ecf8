/// The text that a person reads before a consent: a sentence and facts, and, under a heading of their own, the claims of another party.
///
/// All texts may come from outside. Each line of a claim begins with spaces, also where it wraps, so that none can look like a fact.
public struct ConsentText: Sendable, Equatable {
    /// A label and what it says.
    public struct Line: Sendable, Equatable {
        /// Stands before the colon.
        public var label: String
        /// Stands behind it.
        public var value: String

        /// Creates a line.
        public init(_ label: String, _ value: String) { (self.label, self.value) = (label, value) }
    }

    /// The question, by facts alone, such as "Sign a PDF of 94 kB as Alice Example?".
    public var sentence: String
    /// Lines that this program has computed, verified or been configured with. Shown as by ``DisplayText/visible(_:)``.
    public var facts: [Line]
    /// Stands above the claims, such as "The file says, unverified:".
    public var heading: String
    /// Lines that another party has chosen. Labels and values are shown as by ``DisplayText/claim(_:limit:)``.
    public var claims: [Line]

    /// Creates a text.
    public init(sentence: String, facts: [Line], heading: String, claims: [Line]) {
        (self.sentence, self.facts, self.heading, self.claims) = (sentence, facts, heading, claims)
    }

    /// Returns the text as lines without ends: the sentence, the facts, the heading, the claims.
    ///
    /// - Parameter columns: The width of the screen; a character that is not ASCII counts as two. Only a word of a fact, such as a path or a
    ///   digest, may be longer.
    public func lines(columns: Int = 80) -> [String] {
        var lines = Self.wrapped(sentence.withVisibleControls, "", columns, cutsWords: false)
        for fact in facts {
            lines += Self.wrapped("\(fact.label): \(fact.value)".withVisibleControls, "", columns, cutsWords: false)
        }
        guard !claims.isEmpty else { return lines }
        lines += Self.wrapped(heading.withVisibleControls, "", columns, cutsWords: false)
        for claim in claims {
            lines += Self.wrapped(
                "\(claim.label.asClaim()): \(claim.value.asClaim())", Self.indentation, columns, cutsWords: true)
        }
        return lines
    }

    private static let indentation = "  "
    /// Further indentation of a line after a wrap.
    private static let hanging = "    "

    /// - Parameter cutsWords: Whether no word is longer than a line.
    private static func wrapped(_ text: String, _ indentation: String, _ columns: Int, cutsWords: Bool) -> [String] {
        let next = indentation + hanging
        let columns = max(columns, 4 * next.count)
        var lines: [String] = []
        var (line, width, isEmpty) = (indentation, indentation.count, true)
        func end() {
            lines.append(line)
            (line, width, isEmpty) = (next, next.count, true)
        }
        for word in text.split(separator: " ", omittingEmptySubsequences: false) {
            let size = word.unicodeScalars.reduce(0) { $0 + $1.columns }
            if !isEmpty {
                if width + 1 + size > columns {
                    end()
                } else {
                    line += " "
                    width += 1
                }
            }
            for scalar in word.unicodeScalars {
                if cutsWords, width + scalar.columns > columns { end() }
                line.unicodeScalars.append(scalar)
                width += scalar.columns
            }
            isEmpty = false
        }
        lines.append(line)
        return lines
    }
}

extension Unicode.Scalar {
    /// An upper bound: the widths of other characters are those of the terminal's font.
    fileprivate var columns: Int { isASCII ? 1 : 2 }
}
