package import CertificateProviding
import Glibc
import ProgramRun

/// How programs are notified of new files: by systemd, or by a program of the administrator.
package struct ProgramReload: Sendable, Equatable {
    /// systemd gives a unit 90 seconds to reload by itself.
    private static let limit = Duration.seconds(120)

    private let command: [String]
    /// The units, or the path of the program.
    let told: String
    /// Whether the directory is the last argument.
    private let takesDirectory: Bool
    private let time: Duration

    /// Reads the value of `Files.reload`; `nil` for one that is neither units nor a path.
    package init?(_ text: String) {
        if text.hasPrefix("/") {
            guard !text.contains(where: \.isWhitespace) else { return nil }
            self.init(command: [text], takesDirectory: true)
        } else {
            guard let units = UnitJob.units(text) else { return nil }
            self.init(
                command: UnitJob.command(.reload, units), takesDirectory: false, told: units.joined(separator: " "))
        }
    }

    init(command: [String], takesDirectory: Bool, told: String? = nil, time: Duration = limit) {
        (self.command, self.takesDirectory, self.time) = (command, takesDirectory, time)
        self.told = told ?? command.first ?? ""
    }

    /// The path of the program, if it is missing or cannot be executed.
    package var missingProgram: String? { command.first.flatMap { access($0, X_OK) == 0 ? nil : $0 } }

    /// Runs the program without a shell, with no variables but those that systemctl needs, and waits for its end.
    ///
    /// - Throws: `unavailable` if it cannot be started or fails, with the end of its output; `timedOut`.
    package func run(_ directory: String) throws(ProviderError) {
        let arguments = command + (takesDirectory ? [directory] : [])
        do throws(ProgramRun.Failure) { try ProgramRun(arguments, atMost: time).run() } catch {
            throw ProviderError(
                error.isTimeout ? .timedOut : .unavailable,
                """
                '\(arguments.joined(separator: " ").withVisibleControls)' \(error.reason). The files are there, and the next \
                'certprov renew' tells the programs again.
                """)
        }
    }
}
