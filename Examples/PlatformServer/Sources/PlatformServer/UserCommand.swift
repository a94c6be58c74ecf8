import ArgumentParser

/// Prints a line for the users file.
struct UserCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "user",
        abstract: "Reads a password or an activation code from stdin, and prints a line for the users file.")

    @Argument(help: "The user's name.")
    var name: String

    @Flag(
        help: "The secret is an activation code: it lets the user register once, with a password of the user's choice.")
    var activation = false

    func validate() throws {
        guard !name.isEmpty, !name.hasPrefix("#"), !name.contains(where: { $0 == ":" || $0.isNewline }) else {
            throw ValidationError("The name is empty, begins with '#', or contains ':' or a line break.")
        }
    }

    func run() throws {
        guard let secret = readLine(), PasswordHash.isAcceptable(secret) else {
            throw ValidationError("Write a password of 1 to \(PasswordHash.maximumPasswordLength) bytes to stdin.")
        }
        print("\(name):\(activation ? "activation" : "password"):\(try PasswordHash(of: secret))")
    }
}
