import Glibc
package import IdentityStore
import Synchronization

/// A disk on which one chosen call fails, while everything else really happens.
package final class FaultyDisk: Sendable {
    package enum Call: String, Sendable, CaseIterable {
        case create, write, changeMode, synchronize, rename, link, symbolicLink, unlink, makeDirectory, removeDirectory
    }

    private struct State {
        var counts: [Call: Int] = [:]
        var failing: (call: Call, position: Int, code: Int32)?
        /// Whether there is no room for new files.
        var isFull = false
        /// How many bytes at most are written at once, and whether every other write is interrupted.
        var isStuttering = false
    }
    private let state = Mutex(State())

    package init() {}

    /// How often each call was made.
    package var counts: [Call: Int] { state.withLock { $0.counts } }

    /// Lets the call at `position`, counted from 1 and from now, fail with `code`.
    package func fail(_ call: Call, at position: Int, with code: Int32) {
        state.withLock {
            $0.counts = [:]
            $0.failing = (call, position, code)
        }
    }

    /// From now on there is no room for new files; those that exist can be overwritten.
    package func fill() { state.withLock { $0.isFull = true } }

    package func repair() { state.withLock { $0 = State() } }

    /// From now on a write takes at most three bytes, and every other one is interrupted.
    package func stutter() { state.withLock { $0.isStuttering = true } }

    package var fileSystem: FileSystem {
        let real = FileSystem.system
        var files = real
        files.create = { [self] in
            if isFailing(.create) { return -1 }
            guard $2 & O_EXCL != 0, state.withLock(\.isFull) else { return real.create($0, $1, $2) }
            errno = ENOSPC
            return -1
        }
        files.write = { [self] descriptor, bytes in
            if isFailing(.write) { return -1 }
            let (isStuttering, count) = state.withLock { ($0.isStuttering, $0.counts[.write] ?? 0) }
            guard isStuttering else { return real.write(descriptor, bytes) }
            if count.isMultiple(of: 2) {
                errno = EINTR
                return -1
            }
            return real.write(descriptor, UnsafeRawBufferPointer(rebasing: bytes.prefix(3)))
        }
        files.changeMode = { [self] in isFailing(.changeMode) ? -1 : real.changeMode($0, $1) }
        files.synchronize = { [self] in isFailing(.synchronize) ? -1 : real.synchronize($0) }
        files.rename = { [self] in isFailing(.rename) ? -1 : real.rename($0, $1, $2) }
        files.link = { [self] in isFailing(.link) ? -1 : real.link($0, $1, $2) }
        files.symbolicLink = { [self] in isFailing(.symbolicLink) ? -1 : real.symbolicLink($0, $1, $2) }
        files.unlink = { [self] in isFailing(.unlink) ? -1 : real.unlink($0, $1) }
        files.makeDirectory = { [self] in isFailing(.makeDirectory) ? -1 : real.makeDirectory($0, $1, $2) }
        files.removeDirectory = { [self] in isFailing(.removeDirectory) ? -1 : real.removeDirectory($0, $1) }
        return files
    }

    private func isFailing(_ call: Call) -> Bool {
        let code: Int32? = state.withLock { state in
            state.counts[call, default: 0] += 1
            guard let failing = state.failing, failing.call == call, failing.position == state.counts[call] else {
                return nil
            }
            return failing.code
        }
        guard let code else { return false }
        errno = code
        return true
    }
}
