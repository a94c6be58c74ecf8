/// The source of a secret: the value of a `…-source` parameter. Names the place, never the secret.
public enum SecretSource: Sendable, Hashable {
    /// `file:PATH`: a file that only its owner can read.
    case file(String)
    /// `env:NAME`: an environment variable.
    case environment(String)
    /// `fd:N`: a file descriptor that the process was started with, read once to its end. A descriptor with
    /// close-on-exec is refused, since it cannot be inherited.
    case fileDescriptor(Int32)
    /// `systemd:NAME`: a credential in `$CREDENTIALS_DIRECTORY` (systemd.exec(5), `LoadCredential=`).
    case systemdCredential(String)
    /// `prompt`: the user at the terminal.
    case prompt

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
        switch self {
        case .file(let path): "file:\(path.withVisibleControls)"
        case .environment(let name): "env:\(name.withVisibleControls)"
        case .fileDescriptor(let number): "fd:\(number)"
        case .systemdCredential(let name): "systemd:\(name.withVisibleControls)"
        case .prompt: "prompt"
        }
    }
}
