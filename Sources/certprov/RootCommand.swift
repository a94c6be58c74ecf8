import ArgumentParser
import CArguments
import CertificateProviding
import Glibc
import Synchronization
import Terminal

/// The entry point of the program.
enum RootCommand {
    /// Parses the command line, runs the command, and ends the process.
    static func run() -> Never {
        Console.takeClosedStreams()
        let root = Certprov.self
        let arguments = words.map { String(cString: $0) }
        let isJSON = arguments.contains("--json")
        if let position = firstArgumentThatIsNotText() {
            CommandContext.report(
                ProviderError(
                    .usage, "Argument \(position) is not UTF-8; rename the file, or use a link to it."),
                json: isJSON)
            exit(ExitStatus.usage.rawValue)
        }
        if let option = repeatedOption(arguments) {
            CommandContext.report(
                ProviderError(.usage, "\(option) is given twice, and takes one value; remove one."),
                json: isJSON)
            exit(ExitStatus.usage.rawValue)
        }
        ProcessEnd.catchSignals()
        let failure = Mutex<(any Error)?>(nil)
        MainThreadExecutor().run {
            do {
                try await run(arguments)
            } catch {
                failure.withLock { $0 = error }
            }
        }
        let error = failure.withLock { $0 }
        if error == nil { ProcessEnd.end(ExitStatus.done.rawValue) }
        if let status = error as? ExitCode { ProcessEnd.end(status.rawValue) }
        if isJSON, let error, !(error is ExitCode), root.exitCode(for: error) == .validationFailure {
            CommandContext.report(ProviderError(.usage, root.message(for: error)), json: true)
            exit(ExitStatus.usage.rawValue)
        }
        // Help, version and completion scripts: ArgumentParser ignores errors of stdout.
        if let error, root.exitCode(for: error) == .success {
            do throws(ProviderError) { try Console.print(root.fullMessage(for: error) + "\n") } catch {
                CommandContext.report(error, json: isJSON)
                exit(ExitStatus(error.code).rawValue)
            }
            exit(ExitStatus.done.rawValue)
        }
        root.exit(withError: error)
    }

    /// Runs a command line, without the program's name.
    static func run(_ arguments: [String]) async throws {
        var command = try Certprov.parseAsRoot(arguments)
        // As ArgumentParser's own `main` does: help and completion scripts are not asynchronous.
        if var command = command as? any AsyncParsableCommand {
            try await command.run()
        } else {
            try command.run()
        }
    }

    /// The arguments, without the program's name. `CommandLine` would need `/proc`, which a chroot may not have.
    private static var words: [UnsafePointer<CChar>] {
        (1..<max(1, certprov_argument_count())).compactMap { certprov_argument($0) }
    }

    /// Returns the position, counted from 1, of the first argument that is not UTF-8. Its text would have U+FFFD in its place, so
    /// that a file name would name another file.
    private static func firstArgumentThatIsNotText() -> Int? {
        words.firstIndex { String(validatingCString: $0) == nil }.map { $0 + 1 }
    }

    /// The options that may be given more than once.
    private static let repeatable: Set = ["--set", "--san", "--alpn", "--header", "--allow"]

    /// Returns the first option with a value that is given twice: ArgumentParser would drop the first value without a word.
    static func repeatedOption(_ arguments: [String]) -> String? {
        var seen: Set<Substring> = []
        let words = Array(arguments.prefix { $0 != "--" })
        for (index, word) in words.enumerated() where word.hasPrefix("--") {
            let name = word.prefix { $0 != "=" }
            // A flag may be repeated.
            let hasValue = name.endIndex < word.endIndex || words.dropFirst(index + 1).first?.hasPrefix("-") == false
            guard hasValue, !repeatable.contains(String(name)) else { continue }
            if !seen.insert(name).inserted { return String(name) }
        }
        return nil
    }
}
