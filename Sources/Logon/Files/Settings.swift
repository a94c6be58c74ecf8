package import CertificateProviding

/// A position in a configuration file, shown as `FILE:LINE` in errors and warnings.
package struct SourcePosition: Sendable, CustomStringConvertible {
    package var file: String
    /// Counted from 1.
    package var line: Int

    package init(file: String, line: Int) {
        self.file = file
        self.line = line
    }

    package var description: String { "\(file.withVisibleControls):\(line)" }

    /// Returns the error for a problem at this position. `problem` must not contain a value of the file.
    package func invalid(_ problem: String) -> ProviderError {
        ProviderError(.configurationInvalid, "\(self): \(problem)")
    }

    package var keyTooLong: ProviderError {
        invalid("The key is longer than \(Settings.maximumKeyLength) bytes.")
    }
}

/// A key of a configuration file with its value.
package struct Setting: Sendable {
    package var key: String
    /// The value as written, not trimmed; `nil` if it is not a single value, such as an array.
    package var value: String?
    package var position: SourcePosition
    /// Whether the text before the separator is certainly a key. Otherwise it may be part of a value on a wrong line,
    /// even of a secret, and must not be shown.
    package var isKeyCertain: Bool

    package init(key: String, value: String?, position: SourcePosition, isKeyCertain: Bool = true) {
        self.key = key
        self.value = value
        self.position = position
        self.isKeyCertain = isKeyCertain
    }

    /// The key as the subject of a sentence, shown only if it is certainly a key.
    package var subject: String { isKeyCertain ? "The key '\(key.forDisplay)'" : "The key of this line" }
}

/// The settings of a configuration file in either format, in their order.
package struct Settings: Sendable {
    /// The maximum number of keys. Real files have far fewer.
    package static let maximumCount = 4096
    /// The maximum length of a key in bytes. Keys of nested dictionaries repeat the names above them.
    package static let maximumKeyLength = 1024

    package private(set) var all: [Setting] = []
    private var indices: [String: Int] = [:]

    package init() {}

    package subscript(key: String) -> Setting? { indices[key].map { all[$0] } }

    /// Adds a setting.
    ///
    /// - Throws: `configurationInvalid` for a key that is empty, too long or a duplicate, and for too many keys.
    package mutating func append(_ setting: Setting) throws(ProviderError) {
        guard !setting.key.isEmpty else { throw setting.position.invalid("The key is missing; write KEY = VALUE.") }
        guard setting.key.utf8.count <= Self.maximumKeyLength else { throw setting.position.keyTooLong }
        guard all.count < Self.maximumCount else {
            throw setting.position.invalid("The file has more than \(Self.maximumCount) keys; remove some.")
        }
        if let first = self[setting.key] {
            throw setting.position.invalid(
                "\(setting.subject) is already set in line \(first.position.line); remove one of them.")
        }
        indices[setting.key] = all.count
        all.append(setting)
    }
}

extension String {
    /// The key for a message: on one line, and of limited length.
    package var forDisplay: String {
        let limit = 120
        return (count > limit ? prefix(limit) + "…" : self[...]).description.withVisibleControls
    }
}
