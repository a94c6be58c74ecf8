/// The keys that a property file may have, for a key that is none of them.
///
/// A key that looks like one of them is meant for certprov, and misspelt. Without `Peers.allow`, for example, every peer is
/// admitted, so that such a key must not pass for one of another program.
struct SimilarKeys {
    private struct Known {
        let name: String
        let letters: [Unicode.Scalar]
        init(_ name: String) { (self.name, letters) = (name, SimilarKeys.letters(name)) }
    }
    private let names: [Known]
    /// The first parts of those that have several.
    private let firstParts: [Known]

    /// - Parameters:
    ///   - names: The keys that there are.
    ///   - namespaces: Beginnings of keys, up to a period.
    init(names: [String], namespaces: [String]) {
        let parts = Set((names.filter { $0.contains(".") } + namespaces).map(Self.firstPart))
        (self.names, firstParts) = (names.map(Known.init), parts.sorted().map(Known.init))
    }

    /// Returns the key, or the beginning of keys, that another one looks like; `nil` for one that looks like none.
    ///
    /// Neither case nor separators count, nor one other letter in a word of five to seven, or two in a longer one.
    func lookalike(of key: String) -> String? {
        let whole = Self.letters(key)
        if let known = names.first(where: { Self.isSimilar(whole, to: $0.letters) }) { return known.name }
        let part = Self.letters(Self.firstPart(key))
        return firstParts.first { Self.isSimilar(part, to: $0.letters) }.map { $0.name + ".…" }
    }

    private static func firstPart(_ key: String) -> String { String(key.prefix { $0 != "." }) }

    private static func letters(_ key: String) -> [Unicode.Scalar] {
        key.lowercased().unicodeScalars.filter { !"._-".unicodeScalars.contains($0) }
    }

    private static func isSimilar(_ word: [Unicode.Scalar], to known: [Unicode.Scalar]) -> Bool {
        let limit = known.count < 5 ? 0 : known.count < 8 ? 1 : 2
        guard abs(word.count - known.count) <= limit else { return false }
        return distance(word, known) <= limit
    }

    /// The number of letters that are missing, superfluous, different, or swapped with the next one.
    private static func distance(_ first: [Unicode.Scalar], _ second: [Unicode.Scalar]) -> Int {
        var rows = [Array(0...second.count)]
        for (row, letter) in first.enumerated() {
            let above = rows[row]
            var new = [row + 1]
            for (column, other) in second.enumerated() {
                var cost = min(above[column + 1] + 1, new[column] + 1, above[column] + (letter == other ? 0 : 1))
                if row > 0, column > 0, letter == second[column - 1], first[row - 1] == other {
                    cost = min(cost, rows[row - 1][column - 1] + 1)
                }
                new.append(cost)
            }
            rows.append(new)
        }
        return rows[first.count][second.count]
    }
}
