import CertprovComposition
import Dispatch
import FoundationEssentials
import Glibc
import PluginHost
import Synchronization
import Terminal

/// Ends the process after closing the sessions with tokens, at a normal exit and on a signal.
enum ProcessEnd {
    /// Ends the process. Call it after all output has been written.
    static func end(_ status: Int32) -> Never {
        EndingSignal.leaveToSignal()
        Questions.end()
        endModules()
        // Ending the usual way, OpenSSL would first take its tables apart.
        _exit(status)
    }

    /// Installs handlers for the signals that end the process, which shut down the PKCS#11 modules first. The shutdown
    /// takes at most two seconds; a second signal ends the process at once. An ignored signal, such as SIGHUP under
    /// nohup, stays ignored.
    static func catchSignals() {
        // Swift's own handler takes SIGQUIT for a crash: it prints a backtrace and waits for a key, or goes on.
        if !isIgnored(SIGQUIT) { signal(SIGQUIT, SIG_DFL) }
        guard sem_init(SignalWaiting.semaphore, 0, 0) == 0 else { return }
        var thread = pthread_t()
        let code = pthread_create(
            &thread, nil,
            { _ in
                while sem_wait(SignalWaiting.semaphore) != 0 {}
                ProcessEnd.endModules()
                // A question that began since then holds the signal back.
                Questions.end()
                // The default action by now, so that the parent sees which signal it was.
                let number = EndingSignal.number.load(ordering: .acquiring)
                kill(getpid(), number)
                // The first process of a container does not die of a signal.
                _exit(128 + number)
            }, nil)
        // Without it, signals end the process at once.
        guard code == 0 else { return }
        pthread_detach(thread)
        // Made before a handler needs it.
        EndingSignal.number.store(0, ordering: .releasing)
        for number in [SIGHUP, SIGINT, SIGTERM] {
            guard !isIgnored(number) else { continue }
            var action = sigaction()
            action.__sigaction_handler.sa_handler = { number in
                // Only calls that are safe in a handler.
                signal(number, SIG_DFL)
                EndingSignal.number.store(number, ordering: .releasing)
                sem_post(SignalWaiting.semaphore)
            }
            // A vendor's library may not know that a call can be interrupted.
            action.sa_flags = SA_RESTART
            sigaction(number, &action, nil)
        }
    }

    /// Ends these plugins, too, at a normal exit and on a signal, and removes a temporary directory.
    static func watch(_ plugins: PluginHost, removing directory: String? = nil) {
        watched.withLock { $0 = (plugins, directory) }
    }
    private static let watched = Mutex<(plugins: PluginHost?, directory: String?)>((nil, nil))

    /// Calls `last` at a normal exit and on a signal. It removes a file of this process, such as a socket's, or ends a program.
    static func atEnd(_ last: @escaping @Sendable () -> Void) { lasts.withLock { $0.append(last) } }
    private static let lasts = Mutex<[@Sendable () -> Void]>([])

    private static func endModules() {
        for last in lasts.withLock({ $0 }) { last() }
        let watched = watched.withLock { $0 }
        if let plugins = watched.plugins, plugins.close() {
            let ended = DispatchSemaphore(value: 0)
            Task.detached {
                await plugins.shutdown()
                ended.signal()
            }
            // Whatever a plugin does, it is ended with this process.
            if ended.wait(timeout: .now() + 3) != .success { plugins.kill() }
        }
        if let directory = watched.directory { try? FileManager.default.removeItem(atPath: directory) }
        BuiltIns.endModules()
    }

    private static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        sigaction(number, nil, &action)
        return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self)
            == unsafeBitCast(SIG_IGN, to: Int.self)
    }
}

/// Shared by the signal handler and the thread that waits for it, with ``EndingSignal``.
private enum SignalWaiting {
    nonisolated(unsafe) static let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)
}
