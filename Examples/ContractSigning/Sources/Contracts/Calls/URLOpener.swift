public import CertificateProviding
import Subprocess

/// Hands URLs to the programs that are registered for them, by `xdg-open` or another program.
public struct URLOpener: Sendable {
    private let program: String
    private let time: Duration

    /// - Parameters:
    ///   - program: Its absolute path, or its name in PATH.
    ///   - time: How long to wait for its end. On a desktop that xdg-open does not know, this is the end of the program that it
    ///     starts: one that still runs then has got the URL, and is left alone.
    public init(_ program: String, waiting time: Duration = .seconds(10)) {
        (self.program, self.time) = (program, time)
    }

    /// Starts the program with the URL as its one argument, without a shell.
    ///
    /// - Throws: `unavailable` if it cannot be started, or fails.
    public func open(_ url: String) async throws(ProviderError) {
        var options = PlatformOptions()
        // The signals of this terminal are not for the program that is called.
        options.createSession = true
        let configuration = Configuration(
            executable: .configured(program), arguments: [url],
            platformOptions: options)
        let (ends, end) = AsyncStream<Result<TerminationStatus?, any Error>>.makeStream()
        // Not a child of this task: a program that goes on is not waited for, and not ended.
        Task.detached {
            do {
                // What the program says is no result of this one.
                let result = try await run(
                    configuration, output: .discarded, error: .discarded)
                end.yield(.success(result.terminationStatus))
            } catch {
                end.yield(.failure(error))
            }
            end.finish()
        }
        let timer = Task {
            try await Task.sleep(for: time)
            end.yield(.success(nil))
            end.finish()
        }
        defer { timer.cancel() }
        for await outcome in ends {
            switch outcome {
            case .success(nil), .success(.some(.exited(0))): return
            case .success(.some(let status)): throw failure("failed: \(Self.text(status))")
            case .failure(let error): throw failure("cannot be started: \(error)")
            }
        }
    }

    private static func text(_ status: TerminationStatus) -> String {
        switch status {
        case .exited(let code): "status \(code)"
        case .signaled(let number): "signal \(number)"
        }
    }

    private func failure(_ reason: String) -> ProviderError {
        ProviderError(
            .unavailable,
            "The program \(DisplayText.visible(program)), which opens callbacks, \(reason); look at Contracts.url-opener, and at the "
                + "program that is registered for the scheme.")
    }
}
