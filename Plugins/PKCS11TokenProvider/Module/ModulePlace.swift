import Glibc
import Synchronization

/// Where all providers of a process find the one ``Module`` of a library.
///
/// A library has its sessions, handles and logins once in a process, whoever loads it. Only who knows all of its users
/// can tell whose a handle is, and start it again when none of them needs it. So what is known of it is the process's
/// too.
final class ModulePlace: Sendable {
    private struct Current {
        weak var module: Module?
        /// Those that are being ended, or hang in that.
        var ending: [Module] = []
    }

    /// What nobody uses any more and is not finalised yet.
    private struct Remains {
        let library: Library
        let open: OpenSessions
        /// What the library is valid as long as.
        let owner: ModuleHandles
    }

    private struct Name: Hashable {
        /// A forked child has modules of its own.
        let process: pid_t
        let library: String
    }

    private static let all = Mutex<[Name: ModulePlace]>([:])
    /// Whether the process is ending: no module is started any more.
    private static let isEnding = Atomic(false)

    /// Held for as long as a start takes, or an end.
    private let current = Mutex(Current())
    private let remains = Mutex<[Remains]>([])
    /// How many modules were started and are not finalised: one may have lost its last reference in this moment.
    private let running = Atomic(0)

    static func of(_ library: String) -> ModulePlace {
        all.withLock { all in
            let name = Name(process: getpid(), library: library)
            let place = all[name] ?? ModulePlace()
            all[name] = place
            return place
        }
    }

    /// Returns a use of the module, started where it does not run. Blocks.
    func use(start: () throws(CryptokiError) -> Module) throws(CryptokiError) -> Module.Use {
        try current.withLock { current throws(CryptokiError) in
            if let module = current.module { return Module.Use(module) }
            guard !Self.isEnding.load(ordering: .acquiring) else { throw .ended("C_Initialize") }
            // First, since p11-kit then closes what it takes for open, by handles that the next one may get.
            finalizeRemains()
            let module = try start()
            running.add(1, ordering: .acquiringAndReleasing)
            current.module = module
            return Module.Use(module)
        }
    }

    /// A use of a module ends. After the last one nobody gets that module any more.
    ///
    /// - Parameter isLast: Ends the use, and says whether it is the last one.
    /// - Returns: The same.
    func leave(_ module: Module, _ isLast: () -> Bool) -> Bool {
        current.withLock { current in
            guard isLast() else { return false }
            if current.module === module { current.module = nil }
            current.ending.append(module)
            return true
        }
    }

    /// Lets no module of this process start any more.
    /// - Returns: Those that there are.
    static func beginEnd() -> [ModulePlace] {
        isEnding.store(true, ordering: .releasing)
        let process = getpid()
        return all.withLock { all in all.filter { $0.key.process == process }.map(\.value) }
    }

    /// Ends the module, where it runs, is being started or ended. Blocks, as ``Module/end(by:isWithProcess:)``, and for the start.
    ///
    /// - Returns: Whether no thread is inside the library any more.
    func end(by deadline: ContinuousClock.Instant) -> Bool {
        while true {
            let modules = current.withLock { current in
                finalizeRemains()
                return current.ending + (current.module.map { [$0] } ?? [])
            }
            let ended = modules.map { $0.end(by: deadline, isWithProcess: true) }
            guard ended.allSatisfy({ $0 }) else { return false }
            if running.load(ordering: .acquiring) <= 0 { return true }
            guard ContinuousClock.now < deadline else { return false }
            usleep(1000)
        }
    }

    /// A module has been finalised.
    func forget(_ module: Module) {
        running.subtract(1, ordering: .acquiringAndReleasing)
        current.withLock { current in
            if current.module === module { current.module = nil }
            current.ending.removeAll { $0 === module }
        }
    }

    /// Takes over from a module that nobody uses any more. Does not block.
    func leave(_ library: Library, _ open: OpenSessions, _ owner: ModuleHandles) {
        remains.withLock { $0.append(Remains(library: library, open: open, owner: owner)) }
        owner.releases.run { [self] in current.withLock { _ in finalizeRemains() } }
    }

    private func finalizeRemains() {
        let all = remains.withLock { remains in
            defer { remains = [] }
            return remains
        }
        for one in all {
            one.library.end(one.open, isWithProcess: Self.isEnding.load(ordering: .acquiring))
            running.subtract(1, ordering: .acquiringAndReleasing)
        }
    }
}
