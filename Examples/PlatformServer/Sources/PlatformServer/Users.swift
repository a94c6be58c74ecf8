import Foundation

/// The users file: one `NAME:password:HASH` or `NAME:activation:HASH` a line, and comments that begin with `#`.
struct Users: Sendable {
    enum Credential: Sendable {
        case password(PasswordHash)
        /// The user chooses a password when registering with the activation code.
        case activation(PasswordHash)
    }

    private let credentials: [String: Credential]

    subscript(name: String) -> Credential? { credentials[name] }

    init(file: String) throws {
        try self.init(parsing: try ConfigurationError.text(ofFile: file), file: file)
    }

    /// - Parameter file: The name for errors.
    init(parsing text: String, file: String = "users") throws {
        var credentials: [String: Credential] = [:]
        for (number, line) in text.split(separator: "\n", omittingEmptySubsequences: false).enumerated() {
            guard !line.isEmpty, !line.hasPrefix("#") else { continue }
            let fields = line.split(separator: ":", omittingEmptySubsequences: false)
            guard fields.count == 3, !fields[0].isEmpty, let hash = PasswordHash(String(fields[2])) else {
                throw ConfigurationError("\(file):\(number + 1): expected NAME:password:HASH or NAME:activation:HASH.")
            }
            let name = String(fields[0])
            guard credentials[name] == nil else {
                throw ConfigurationError("\(file):\(number + 1): a second line for \(name).")
            }
            switch fields[1] {
            case "password": credentials[name] = .password(hash)
            case "activation": credentials[name] = .activation(hash)
            default: throw ConfigurationError("\(file):\(number + 1): the kind is neither password nor activation.")
            }
        }
        self.credentials = credentials
    }
}
