package import CertificateProviding

/// A place in a configuration file, as errors and warnings show it: `FILE:LINE`.
package struct SourcePosition: Sendable, CustomStringConvertible {
    package var file: String
    /// Counted from 1.
    package var line: Int

    package init(file: String, line: Int) {
        self.file = file
        self.line = line
    }

    package var description: String { "\(file.withVisibleControls):\(line)" }

    /// Returns the error for something wrong here. `problem` must not hold a value of the file.
    package func invalid(_ problem: String) -> CertificateProviderError {
        CertificateProviderError(.configurationInvalid, "\(self): \(problem)")
    }

    package var keyTooLong: CertificateProviderError {
        invalid("The key is longer than \(Settings.maximumKeyLength) bytes.")
    }
}

/// One key of a configuration file with what it is set to.
package struct Setting: Sendable {
    package var key: String
    /// As written, not trimmed; `nil` for what is not a single value, such as an array.
    package var value: String?
    package var position: SourcePosition
    /// Whether the key is surely meant as one. What else a line begins with may be a part of a value that went astray,
    /// even of a secret.
    package var isKeyCertain: Bool

    package init(key: String, value: String?, position: SourcePosition, isKeyCertain: Bool = true) {
        self.key = key
        self.value = value
        self.position = position
        self.isKeyCertain = isKeyCertain
    }

    /// The key as the subject of a sentence, where it may be shown.
    package var subject: String { isKeyCertain ? "The key '\(key.forDisplay)'" : "The key of this line" }
}

/// What a configuration file says, in the order written, whichever form it has.
package struct Settings: Sendable {
    /// No real file has more keys, and what reads them need not be fast.
    package static let maximumCount = 4096
    /// In bytes. Every key of a nested dictionary repeats the names above it, so their length multiplies.
    package static let maximumKeyLength = 1024

    package private(set) var all: [Setting] = []
    private var indices: [String: Int] = [:]

    package init() {}

    package subscript(key: String) -> Setting? { indices[key].map { all[$0] } }

    /// - Throws: `configurationInvalid` for a key that is empty, too long or there already, and for one too many.
    package mutating func append(_ setting: Setting) throws(CertificateProviderError) {
        guard !setting.key.isEmpty else { throw setting.position.invalid("The key is missing.") }
        guard setting.key.utf8.count <= Self.maximumKeyLength else { throw setting.position.keyTooLong }
        guard all.count < Self.maximumCount else {
            throw setting.position.invalid("The file has more than \(Self.maximumCount) keys.")
        }
        if let first = self[setting.key] {
            throw setting.position.invalid(
                "\(setting.subject) is in line \(first.position.line) already; remove one of them.")
        }
        indices[setting.key] = all.count
        all.append(setting)
    }
}

extension String {
    /// A key as a message shows it: in one line, and no longer than that.
    package var forDisplay: String {
        let limit = 120
        return (count > limit ? prefix(limit) + "…" : self[...]).description.withVisibleControls
    }

    /// Without the blanks, tabs and line ends at both ends. Takes off what Java's `String.trim()` does.
    package var trimmed: String {
        let scalars = unicodeScalars
        guard let first = scalars.firstIndex(where: { $0.value > 0x20 }),
            let last = scalars.lastIndex(where: { $0.value > 0x20 })
        else { return "" }
        return String(scalars[first...last])
    }
}
