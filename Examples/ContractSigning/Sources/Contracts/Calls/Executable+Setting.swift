import Subprocess

extension Executable {
    /// A program as settings have it: its absolute path, or its name in PATH.
    static func configured(_ text: String) -> Executable { text.hasPrefix("/") ? .path(literal(text)) : .name(text) }

    /// The path is of a package that this one does not depend on; but a literal of it is a text.
    private static func literal<Path: ExpressibleByStringLiteral>(_ text: String) -> Path
    where Path.StringLiteralType == String {
        Path(stringLiteral: text)
    }
}
