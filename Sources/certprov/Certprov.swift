import ArgumentParser
import CertificateProviding
import CertprovCommand
import Glibc
import RemoteMDMParameters

/// The command as it is installed. It starts often and should start fast, so it does not carry the network stack; what
/// needs that it hands over to `certprov-full`, with the same arguments.
@main
enum Main {
    static func main() {
        // Returns only where there is no such program: then all goes its usual way, and says so if that matters.
        if FullCommand.isForeseen { _ = FullCommand.takeOver() }
        let abilities = ProgramAbilities(
            makeRemoteMDMProvider: { _ in
                AbsentProvider(id: RemoteMDMParameters.id, error: FullCommand.takeOver())
            })
        CommandContext.$abilities.withValue(abilities) { RootCommand.run(Certprov.self) }
    }
}

struct Certprov: AsyncParsableCommand {
    static let configuration = RootCommand.configuration(connect: Connect.self)
}

/// Stands for the `connect` of `certprov-full`.
struct Connect: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "connect", _superCommandName: "certprov",
        abstract: "Make a TLS handshake with the identity, and show the result.",
        discussion: "Run 'certprov connect --help' for its options.")

    @Argument(parsing: .captureForPassthrough, help: "HOST:PORT and options.")
    var arguments: [String] = []

    func run() async throws {
        let error = FullCommand.takeOver()
        CommandContext.report(error, json: arguments.contains("--json"))
        throw ExitCode(ExitStatus(error.code).rawValue)
    }
}

/// The program with everything in it, which `make install` puts into libexec.
enum FullCommand {
    /// Becomes that program. Returns only when that fails.
    static func takeOver() -> CertificateProviderError {
        let program = "certprov-full"
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        let count = readlink("/proc/self/exe", &buffer, buffer.count)
        let own = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let directory = own.lastIndex(of: "/").map { String(own[..<$0]) } ?? "."
        let candidates = ["\(directory)/../libexec/certprov/\(program)", "\(directory)/\(program)"]
        for path in candidates where access(path, X_OK) == 0 {
            // As they came: one that is not text is refused there, with its place.
            execv(path, CommandLine.unsafeArgv)
        }
        return CertificateProviderError(
            .internal,
            "\(program) cannot be run; it should be at \(candidates.joined(separator: " or ")). Reinstall certprov.")
    }
}
