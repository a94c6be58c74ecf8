/// The source of a secret: the value of a `…-source` parameter. Names the place, never the secret.
public struct SecretSource: Sendable, Hashable {
    package enum Kind: Sendable, Hashable {
        case file(String), environment(String), fileDescriptor(Int32), systemdCredential(String), prompt
    }
    package let kind: Kind

    /// `file:PATH`: a file that only its owner can read, or besides the members of a group that this process is in.
    public static func file(_ path: String) -> Self { Self(kind: .file(path)) }
    /// `env:NAME`: an environment variable.
    public static func environment(_ name: String) -> Self { Self(kind: .environment(name)) }
    /// `fd:N`: a file descriptor that the process was started with, read once to its end. A descriptor with
    /// close-on-exec is refused, since it cannot be inherited.
    public static func fileDescriptor(_ number: Int32) -> Self { Self(kind: .fileDescriptor(number)) }
    /// `systemd:NAME`: a credential in `$CREDENTIALS_DIRECTORY` (systemd.exec(5), `LoadCredential=`).
    public static func systemdCredential(_ name: String) -> Self { Self(kind: .systemdCredential(name)) }
    /// `prompt`: the user at the terminal.
    public static let prompt = Self(kind: .prompt)

    private init(kind: Kind) { self.kind = kind }

    /// Whether it is a descriptor, which can be read only once.
    public var isFileDescriptor: Bool { if case .fileDescriptor = kind { true } else { false } }
    /// The path of a file; `nil` for another source.
    public var filePath: String? { if case .file(let path) = kind { path } else { nil } }

    /// Reads one of the forms above; `nil` for any other text.
    public init?(_ text: String) {
        if text == "prompt" {
            self = .prompt
            return
        }
        guard let colon = text.firstIndex(of: ":") else { return nil }
        let value = String(text[text.index(after: colon)...])
        guard !value.isEmpty, !value.utf8.contains(0) else { return nil }
        switch text[..<colon] {
        case "file":
            self = .file(value)
        case "env":
            guard !value.contains("=") else { return nil }
            self = .environment(value)
        case "fd":
            guard let number = Int32(value), number >= 0 else { return nil }
            self = .fileDescriptor(number)
        case "systemd":
            // A name, as systemd demands it: never a way out of the directory.
            guard !value.contains("/"), value != ".", value != ".." else { return nil }
            self = .systemdCredential(value)
        default:
            return nil
        }
    }
}

extension SecretSource: CustomStringConvertible {
    public var description: String {
        switch kind {
        case .file(let path): "file:\(path.withVisibleControls)"
        case .environment(let name): "env:\(name.withVisibleControls)"
        case .fileDescriptor(let number): "fd:\(number)"
        case .systemdCredential(let name): "systemd:\(name.withVisibleControls)"
        case .prompt: "prompt"
        }
    }
}
