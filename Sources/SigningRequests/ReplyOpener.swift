package import CertificateProviding
import ProgramRun

/// Hands a reply to the application that is registered for its scheme, or a file to that for its kind, by xdg-open(1).
package enum ReplyOpener {
    /// The longest argument of a program that the kernel takes (MAX_ARG_STRLEN, execve(2)), in bytes, without its NUL.
    package static let longestURL = 131_071

    /// Starts `xdg-open URL`, without a shell, and waits for its end. On a desktop that xdg-open does not know, this is the end of
    /// the application that it starts: one that still runs after a while has got the URL, and is left alone.
    ///
    /// - Parameters:
    ///   - url: The reply.
    ///   - time: How long to wait.
    /// - Throws: `operationNotAllowed` for a URL that is too long; `unavailable` if xdg-open cannot be started or finds no
    ///   application.
    package static func open(
        _ url: RequestURL, within time: Duration = .seconds(10)
    ) async throws(ProviderError) {
        let text = url.text
        guard text.utf8.count <= longestURL else {
            throw ProviderError(
                .operationNotAllowed,
                "The reply has \(text.utf8.count) bytes, and an argument of a program at most \(longestURL); have the application "
                    + "use the socket.")
        }
        guard let failure = try await failure(of: text, within: time) else { return }
        throw ProviderError(
            .unavailable,
            "xdg-open (package xdg-utils), which hands the reply to the application, \(failure); look which one is registered: "
                + "xdg-mime query default x-scheme-handler/\(url.scheme)")
    }

    /// Shows a file to the person: starts `xdg-open PATH` as ``open(_:within:)`` does.
    ///
    /// - Parameters:
    ///   - path: Absolute.
    ///   - time: How long to wait. A program that shows it may run for longer.
    /// - Throws: `unavailable`.
    package static func show(
        _ path: String, within time: Duration = .seconds(2)
    ) async throws(ProviderError) {
        guard let failure = try await failure(of: path, within: time) else { return }
        throw ProviderError(
            .unavailable,
            "xdg-open (package xdg-utils), which shows \(path.withVisibleControls), \(failure); open it with another program."
        )
    }

    private static func failure(of argument: String, within time: Duration) async throws(ProviderError) -> String? {
        try await BlockingExecutor.threads(maximum: 1).run { () throws(ProviderError) in
            do throws(ProgramRun.Failure) {
                try ProgramRun(ofSession: ["xdg-open", argument], waitingFor: time).run()
                return nil
            } catch { return error.reason }
        }
    }
}
