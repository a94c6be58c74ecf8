import Terminal
import CertificateProviding
import Contracts
import FoundationEssentials
import Glibc
import Subprocess

/// Puts the handler's files into the user's data directory, and has the desktop's programs read them.
struct HandlerInstallation {
    private let data: String
    /// Where `xdg-mime default` writes.
    private let defaults: [String]
    private let warnings: Warnings

    /// - Throws: `configurationInvalid` if the environment names no data directory.
    init(
        environment: (String) -> String? = { name in getenv(name).map { String(cString: $0) } }, warnings: Warnings
    ) throws(ProviderError) {
        self.warnings = warnings
        func directory(_ name: String, _ standard: String) -> String? {
            if let path = environment(name), path.hasPrefix("/") { return path }
            return environment("HOME").flatMap { $0.hasPrefix("/") ? "\($0)/\(standard)" : nil }
        }
        guard let data = directory("XDG_DATA_HOME", ".local/share") else {
            throw ProviderError(
                .configurationInvalid, "Neither XDG_DATA_HOME nor HOME is an absolute path; set one of them.")
        }
        self.data = data
        defaults =
            ["\(data)/applications/mimeapps.list"]
            + (directory("XDG_CONFIG_HOME", ".config").map { ["\($0)/mimeapps.list"] } ?? [])
    }

    /// The desktop entry's path.
    var desktopEntry: String { "\(data)/applications/\(HandlerFiles.desktopEntry)" }
    private var mimeFile: String { "\(data)/mime/packages/\(HandlerFiles.mimeFile)" }

    /// Writes the files.
    ///
    /// - Parameter command: The program, and its arguments before the URL or file.
    /// - Throws: `storeWriteFailed`.
    func install(_ command: [String], isInTerminal: Bool) async throws(ProviderError) {
        try write(HandlerFiles.desktopEntry(command, isInTerminal: isInTerminal), to: desktopEntry)
        try write(HandlerFiles.mimeType, to: mimeFile)
        await refresh()
        await run("xdg-mime", ["default", HandlerFiles.desktopEntry] + HandlerFiles.mimeTypes)
    }

    /// Removes the files. One that is not there is none to remove.
    ///
    /// - Throws: `deleteFailed`.
    func remove() async throws(ProviderError) {
        for path in [desktopEntry, mimeFile] {
            guard unlink(path) == 0 || errno == ENOENT else {
                throw ProviderError(
                    .deleteFailed,
                    "\(DisplayText.visible(path)) cannot be removed: \(String(cString: strerror(errno))).")
            }
        }
        for path in defaults { try forgetDefaults(in: path) }
        await refresh()
    }

    /// Takes the entry out of the user's list of defaults.
    private func forgetDefaults(in path: String) throws(ProviderError) {
        guard let text = try? String(contentsOfFile: path, encoding: .utf8) else { return }
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        let left = lines.compactMap { line -> String? in
            guard let type = HandlerFiles.mimeTypes.first(where: { line.hasPrefix($0 + "=") }) else {
                return String(line)
            }
            let entries = line.dropFirst(type.count + 1).split(separator: ";").filter {
                $0 != HandlerFiles.desktopEntry
            }
            return entries.isEmpty ? nil : "\(type)=\(entries.joined(separator: ";"))"
        }
        if left != lines.map(String.init) { try write(left.joined(separator: "\n"), to: path) }
    }

    private func refresh() async {
        if access(data + "/mime/packages", F_OK) == 0 { await run("update-mime-database", [data + "/mime"]) }
        if access(data + "/applications", F_OK) == 0 {
            await run("update-desktop-database", [data + "/applications"])
        }
    }

    /// Runs a program of the desktop. Without it the files are there, and what is left is said.
    private func run(_ program: String, _ arguments: [String]) async {
        do {
            let result = try await Subprocess.run(
                .name(program), arguments: Arguments(arguments), output: .discarded, error: .string(limit: 1 << 16))
            guard !result.terminationStatus.isSuccess else { return }
            let text = result.standardError.split(separator: "\n").last.map { ": \($0)" } ?? ""
            warnings.append(
                DisplayText.visible("\(program) failed\(text); run it by hand: \(line(program, arguments))"))
        } catch {
            warnings.append(
                DisplayText.visible("\(program) cannot be run; have it run once: \(line(program, arguments))"))
        }
    }

    private func line(_ program: String, _ arguments: [String]) -> String {
        ([program] + arguments).map(DisplayText.shellQuoted).joined(separator: " ")
    }

    private func write(_ text: String, to path: String) throws(ProviderError) {
        do {
            let directory = String(path[..<(path.lastIndex(of: "/") ?? path.startIndex)])
            try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
            // In one step: a desktop reads it when it likes.
            try Data(text.utf8).write(to: URL(filePath: path), options: .atomic)
            guard chmod(path, 0o644) == 0 else { throw CocoaError(.fileWriteUnknown) }
        } catch {
            throw ProviderError(
                .storeWriteFailed,
                "\(DisplayText.visible(path)) cannot be written: \(String(cString: strerror(errno))).",
                underlying: error)
        }
    }

    /// The path of this program.
    ///
    /// - Throws: `internal` without `/proc`.
    static func program() throws(ProviderError) -> String {
        guard let path = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe") else {
            throw ProviderError(.internal, "The path of this program is not known: /proc is not there.")
        }
        return path
    }

    /// The path from the root.
    static func absolute(_ path: String) -> String {
        path.hasPrefix("/") ? path : FileManager.default.currentDirectoryPath + "/" + path
    }
}
