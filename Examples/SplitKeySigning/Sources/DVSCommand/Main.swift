import ArgumentParser
import CertificateProviding
import Glibc
import Terminal

@main
enum Main {
    /// Parses the command line, and runs the subcommand.
    static func main() async {
        CommandProcess.prepare()
        let words = CommandLine.arguments.dropFirst()
        let names = words.prefix { $0 != "--" }.map { $0.prefix { $0 != "=" } }
        // ArgumentParser would drop the first value without a word.
        for option in ["--config", "--user", "--out", "--code-source", "--new-pin-source"]
        where names.count(where: { $0 == option }) > 1 {
            let error = ProviderError(.usage, "\(option) is given twice, and takes one value; remove one.")
            Context.report(error, json: words.contains("--json"))
            exit(ExitStatus.usage.rawValue)
        }
        do {
            var command = try DVSCommand.parseAsRoot(Array(words))
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let status as ExitCode {
            exit(status.rawValue)
        } catch {
            end(error, isJSON: words.contains("--json"))
        }
    }

    /// Shows a mistake of the command line, or what `--help` and `--version` ask for.
    private static func end(_ error: any Error, isJSON: Bool) -> Never {
        let root = DVSCommand.self
        guard root.exitCode(for: error) != .success else {
            do throws(ProviderError) { try Console.print(root.fullMessage(for: error) + "\n") } catch {
                Context.report(error, json: isJSON)
                exit(ExitStatus(error.code).rawValue)
            }
            exit(ExitStatus.done.rawValue)
        }
        if isJSON {
            Context.report(ProviderError(.usage, root.message(for: error)), json: true)
        } else {
            Console.note(root.fullMessage(for: error))
        }
        exit((root.exitCode(for: error) == .validationFailure ? ExitStatus.usage : .software).rawValue)
    }
}
