import ArgumentParser
import CertificateProviding
import Glibc
import Terminal

@main
enum Main {
    /// Parses the command line, and runs the subcommand.
    static func main() async {
        CommandProcess.prepare()
        let words = self.words
        let isJSON = words.contains { strcmp($0, "--json") == 0 }
        let arguments = words.compactMap { String(validatingCString: $0) }
        guard arguments.count == words.count else {
            fail("An argument is not UTF-8; rename the file, or use a link to it.", isJSON)
        }
        if let option = repeatedOption(arguments) {
            fail("\(option) is given twice, and takes one value; remove one.", isJSON)
        }
        do {
            var command = try ContractsCommand.parseAsRoot(arguments)
            if var command = command as? any AsyncParsableCommand {
                try await command.run()
            } else {
                try command.run()
            }
        } catch let status as ExitCode {
            exit(status.rawValue)
        } catch {
            end(error, arguments, isJSON)
        }
    }

    /// Shows a mistake of the command line, or what `--help` and `--version` ask for.
    private static func end(_ error: any Error, _ arguments: [String], _ isJSON: Bool) -> Never {
        let root = ContractsCommand.self
        guard root.exitCode(for: error) != .success else {
            do throws(ProviderError) { try Console.print(root.fullMessage(for: error) + "\n") } catch {
                Context.report(error, json: isJSON)
                exit(ExitStatus(error.code).rawValue)
            }
            exit(ExitStatus.done.rawValue)
        }
        let status = root.exitCode(for: error) == .validationFailure ? ExitStatus.usage : .software
        if isJSON {
            let message = CallText.hidingCalls(of: arguments, in: root.message(for: error))
            Context.report(ProviderError(.usage, message), json: true)
        } else {
            Console.note(CallText.hidingCalls(of: arguments, in: root.fullMessage(for: error)))
        }
        exit(status.rawValue)
    }

    private static func fail(_ message: String, _ isJSON: Bool) -> Never {
        Context.report(ProviderError(.usage, message), json: isJSON)
        exit(ExitStatus.usage.rawValue)
    }

    /// The arguments, without the program's name.
    private static var words: [UnsafeMutablePointer<CChar>] {
        (1..<max(1, Int(CommandLine.argc))).compactMap { CommandLine.unsafeArgv[$0] }
    }

    /// Returns the first option with a value that is given twice: ArgumentParser would drop the first value without a word.
    private static func repeatedOption(_ arguments: [String]) -> String? {
        var seen: Set<Substring> = []
        for word in arguments.prefix(while: { $0 != "--" }) where word.hasPrefix("--") {
            let name = word.prefix { $0 != "=" }
            guard single.contains(String(name)) else { continue }
            if !seen.insert(name).inserted { return String(name) }
        }
        return nil
    }

    /// The options with one value.
    private static let single: Set = ["--config", "--token-source", "--keep"]
}
