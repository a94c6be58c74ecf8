import ArgumentParser
import CertificateProviding
import CommandSupport
import Glibc

/// Hands over to `certprov-connect`.
///
/// The network stack is a program of its own: linked in here it would double the time that every other subcommand takes
/// to start.
struct Connect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect", _superCommandName: "certprov",
        abstract: "Make a TLS handshake with the identity, and show what came of it.",
        discussion: "Run 'certprov connect --help' for its options.")

    @Argument(parsing: .captureForPassthrough, help: "HOST:PORT and options.")
    var arguments: [String] = []

    func run() async throws {
        let program = "certprov-connect"
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        let own = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let directory = own.lastIndex(of: "/").map { String(own[..<$0]) } ?? "."
        let candidates = ["\(directory)/../libexec/certprov/\(program)", "\(directory)/\(program)"]
        for path in candidates where access(path, X_OK) == 0 {
            var words = ([program] + arguments).map { strdup($0) } + [nil]
            execv(path, &words)
        }
        Console.note("certprov: \(program) cannot be run; it belongs at \(candidates.joined(separator: " or ")).")
        throw ExitCode(ExitStatus.software.rawValue)
    }
}
