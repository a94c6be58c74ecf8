public import CertificateProviding
import Glibc
import Subprocess

/// The program of `Contracts.renderer`: makes the PDF of a contract that has a template instead.
public struct ProgramRenderer: Sendable {
    /// The largest PDF, in bytes.
    public static let maximumSize = 50 << 20

    private let program: String
    private let time: Duration

    /// - Parameters:
    ///   - program: Its absolute path, or its name in PATH. It gets no arguments.
    ///   - time: How long it may take. Then it is ended, with what it has started.
    public init(_ program: String, within time: Duration = .seconds(60)) {
        (self.program, self.time) = (program, time)
    }

    /// Returns the PDF that the program writes to stdout for the file, which it gets on stdin.
    ///
    /// What it writes to stderr goes to that of this process.
    ///
    /// - Throws: `unavailable` if it cannot be started or fails, `timedOut`, `malformedData` if it writes too much or nothing.
    public func pdf(of json: [UInt8]) async throws(ProviderError) -> [UInt8] {
        var options = PlatformOptions()
        options.createSession = true
        options.teardownSequence = [
            .send(signal: .terminate, toProcessGroup: true, allowedDurationToNextStep: .seconds(1)),
            .send(signal: .kill, toProcessGroup: true, allowedDurationToNextStep: .seconds(1)),
        ]
        let configuration = Configuration(
            executable: .configured(program), platformOptions: options)
        // A program that needs less than the whole file may close its input, which must not end this process.
        Self.keepFromBrokenPipes()
        let outcome: Outcome
        do {
            outcome = try await withThrowingTaskGroup(of: Outcome.self) { group in
                group.addTask {
                    let result = try await run(
                        configuration, input: .inputWriter, output: .bytes(limit: Self.maximumSize),
                        error: .currentStandardError
                    ) { execution in
                        _ = try? await execution.standardInputWriter.write(json)
                        try? await execution.standardInputWriter.finish()
                    }
                    return Outcome.ended(result.terminationStatus, result.standardOutput)
                }
                group.addTask {
                    try await Task.sleep(for: time)
                    return .overdue
                }
                defer { group.cancelAll() }
                return try await group.next() ?? .overdue
            }
        } catch let error as SubprocessError where error.code == .outputLimitExceeded {
            throw failure(.malformedData, "writes more than \(Self.maximumSize) bytes")
        } catch {
            throw failure(.unavailable, "cannot be run: \(error)")
        }
        guard case .ended(let status, let pdf) = outcome else {
            throw failure(.timedOut, "has not ended within \(time / .seconds(1)) s")
        }
        guard status.isSuccess else { throw failure(.unavailable, "has ended with \(Self.text(of: status))") }
        guard !pdf.isEmpty else { throw failure(.malformedData, "has written nothing to stdout") }
        return pdf
    }

    private static func text(of status: TerminationStatus) -> String {
        switch status {
        case .exited(let code): "status \(code)"
        case .signaled(let signal): "signal \(signal)"
        }
    }

    /// Ignores SIGPIPE, unless the process has a handler.
    private static func keepFromBrokenPipes() {
        var action = sigaction()
        guard sigaction(SIGPIPE, nil, &action) == 0, action.__sigaction_handler.sa_handler == nil else { return }
        signal(SIGPIPE, SIG_IGN)
    }

    private enum Outcome: Sendable {
        case ended(TerminationStatus, [UInt8])
        case overdue
    }

    private func failure(_ code: ProviderError.Code, _ reason: String) -> ProviderError {
        ProviderError(
            code,
            "options: The program \(DisplayText.visible(program)) of Contracts.renderer, which makes the PDF of a template, \(reason)."
        )
    }
}
