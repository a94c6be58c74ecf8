import CertificateProviding
import Glibc
import Synchronization

/// Maps each library to its one ``Module`` in this process, from the first use to the end of the last.
///
/// A library has its sessions, handles and logins once in a process, whichever provider loads it. Only an object that knows all
/// of its users can tell which of them a handle belongs to, and start it again when none of them needs it. So the state of a
/// module belongs to the process too.
final class ModuleRegistry: Sendable {
    private struct State {
        var module: Module?
        var uses = 0
        /// Modules with a call that did not return when they were to end. They end before the next start, if it has returned by
        /// then: otherwise p11-kit would not start the library again, but count one more user.
        var hanging: [Module] = []
    }

    private struct Name: Hashable {
        /// A forked child has modules of its own.
        let process: pid_t
        let library: String
    }

    private static let all = BlockingMutex<[Name: ModuleRegistry]>([:])
    /// Set with `all` locked when the process ends: no module starts after that.
    private static let isEnding = Atomic(false)

    /// Held for as long as a start takes, or an end: p11-kit closes sessions at the end, by handles that the next start
    /// may give out again.
    private let state = BlockingMutex(State())
    let libraryLock = LibraryLock()

    static func of(_ library: String) -> ModuleRegistry {
        all.withLock { all in
            let name = Name(process: getpid(), library: library)
            let place = all[name] ?? ModuleRegistry()
            all[name] = place
            return place
        }
    }

    /// Returns a use of the module, started where it does not run. Blocks.
    func use(start: () throws(CryptokiError) -> Module) throws(CryptokiError) -> Module.Use {
        try state.withLock { state throws(CryptokiError) in
            guard !Self.isEnding.load(ordering: .acquiring) else { throw .ended("C_Initialize") }
            if state.module == nil {
                state.hanging.removeAll { $0.end(by: .now + Self.shortTime, isWithProcess: false) }
            }
            let module = if let running = state.module { running } else { try start() }
            state.module = module
            state.uses += 1
            return Module.Use(module)
        }
    }

    /// The time for the end of a module without calls in progress.
    private static let shortTime = Duration.milliseconds(200)

    /// Whether more than one provider uses the module.
    func isShared(_ module: Module) -> Bool { state.withLock { $0.module === module && $0.uses > 1 } }

    /// Takes back a use. The last one ends the module. Blocks, as ``Module/end(by:isWithProcess:)``.
    func leave(_ module: Module, by deadline: ContinuousClock.Instant) {
        state.withLock { state in
            guard state.module === module else { return }
            state.uses -= 1
            guard state.uses == 0 else { return }
            state.module = nil
            if !module.end(by: deadline, isWithProcess: false) { state.hanging.append(module) }
        }
    }

    /// Keeps modules of this process from starting.
    /// - Returns: The places of this process.
    static func beginEnd() -> [ModuleRegistry] {
        let process = getpid()
        return all.withLock { all in
            isEnding.store(true, ordering: .releasing)
            return all.filter { $0.key.process == process }.map(\.value)
        }
    }

    /// Calls `body` before ``beginEnd()``, or not at all.
    static func unlessEnding(_ body: () -> Void) -> Bool {
        all.withLock { _ in
            if isEnding.load(ordering: .acquiring) { return false }
            body()
            return true
        }
    }

    /// Ends the module with the process, after a start or an end that is under way. Blocks, as
    /// ``Module/end(by:isWithProcess:)``.
    ///
    /// - Returns: Whether no thread is inside the library.
    func end(by deadline: ContinuousClock.Instant) -> Bool {
        state.withLock { state in
            let modules = state.hanging + (state.module.map { [$0] } ?? [])
            state = State(hanging: modules.filter { !$0.end(by: deadline, isWithProcess: true) })
            return state.hanging.isEmpty
        }
    }
}
