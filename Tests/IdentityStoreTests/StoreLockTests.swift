import CertificateProviding
import Dispatch
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct StoreLockTests {
    @Test("The store's lock is held by one thread at a time")
    func isHeldByOneAtATime() throws {
        let directory = try TemporaryDirectory()
        try directory.write(Array("0".utf8), to: "counter")
        DispatchQueue.concurrentPerform(iterations: 16) { _ in
            guard let root = try? SafeDirectory.open(directory.path),
                let lock = try? StoreLock(in: root, timeout: .seconds(600), FileSystem()),
                let text = try? String(contentsOfFile: directory["counter"], encoding: .utf8), let count = Int(text)
            else { return }
            // Any other thread in here reads the same number now, and one of the two is not counted.
            for _ in 1...10 { sched_yield() }
            try? "\(count + 1)".write(toFile: directory["counter"], atomically: false, encoding: .utf8)
            withExtendedLifetime(lock) {}
        }
        #expect(try String(contentsOfFile: directory["counter"], encoding: .utf8) == "16")
    }

    private final class Counters: Sendable {
        let isDone = Atomic(false)
        let stolen = Atomic(0)
    }

    /// A descriptor that is closed twice belongs to another thread the second time.
    @Test func givingUpClosesNoDescriptorOfOthers() throws {
        let directory = try TemporaryDirectory()
        let root = try #require(try SafeDirectory.open(directory.path))
        let held = try StoreLock(in: root, timeout: .zero, FileSystem())
        let counters = Counters()
        let ended = DispatchGroup()
        for _ in 1...3 {
            ended.enter()
            // Threads of their own: Dispatch might run one after the other.
            Thread.detachNewThread {
                while !counters.isDone.load(ordering: .relaxed) {
                    let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
                    sched_yield()
                    if close(descriptor) != 0 { counters.stolen.add(1, ordering: .relaxed) }
                }
                ended.leave()
            }
        }
        for _ in 1...5000 { _ = try? StoreLock(in: root, timeout: .zero, FileSystem()) }
        counters.isDone.store(true, ordering: .relaxed)
        ended.wait()
        #expect(counters.stolen.load(ordering: .relaxed) == 0)
        withExtendedLifetime(held) {}
    }

    @Test func aWriterGivesUpAsTheStoreSays() throws {
        let fixture = try StoreFixture()
        let identity = try Samples.stored("x")
        try fixture.storage().setEntry(identity, named: "entry")
        let root = try #require(try SafeDirectory.open(fixture.path))
        // A program that another test starts has the first writer's descriptor for an instant, and with it the lock.
        let held = try StoreLock(in: root, timeout: StoreLock.timeout, FileSystem())
        let store = IdentityStore(path: fixture.path, keySource: nil, files: FileSystem(), lockTimeout: .zero)
        let storage = store.storage(for: ProviderID("test"))
        // For the same reason the holder may be such a program for an instant.
        var writing = try error { try storage.setEntry(identity, named: "entry") }
        for _ in 0..<1000 where !writing.message.contains("of this process has held") {
            usleep(1000)
            writing = try error { try storage.setEntry(identity, named: "entry") }
        }
        #expect(writing.code == .operationNotAllowed && writing.reason == .busy, "\(writing)")
        #expect(writing.message.contains("of this process has held"), "\(writing)")
        #expect(try error { try storage.removeEntry(named: "entry") }.code == .operationNotAllowed)
        withExtendedLifetime(held) {}
        #expect(try storage.entry(named: "entry") == identity)
    }

    @Test func givesUpWhenAnotherProcessHoldsIt() throws {
        let directory = try TemporaryDirectory()
        let root = try #require(try SafeDirectory.open(directory.path))
        // flock(1) holds the lock for as long as the shell, which says that it has it, waits for our end of the pipe.
        let process = try Subprocess([
            "flock", "--no-fork", directory[".lock"], "sh", "-c", "echo locked; read line",
        ])
        #expect(process.readLine() == "locked")

        let start = ContinuousClock.now
        let timeout = Duration.milliseconds(50)
        #expect {
            _ = try StoreLock(in: root, timeout: timeout, FileSystem())
        } throws: {
            guard let refusal = $0 as? SafeDirectory.Refusal else { return false }
            return refusal.isBusy
                && refusal.reason.contains("the process ")
                && refusal.reason.contains("(sh) has held the lock \(directory[".lock"])")
        }
        #expect(ContinuousClock.now - start >= timeout)

        process.closeInput()
        #expect(process.wait(seconds: 600) == 1)
        _ = try StoreLock(in: root, timeout: .seconds(600), FileSystem())
    }

    @Test("The holder of a lock is named on a host with hundreds of locks")
    func theHolderIsFoundAmongMany() throws {
        let directory = try TemporaryDirectory()
        let files = (0..<300).map { open(directory["\($0)"], O_RDWR | O_CREAT | O_CLOEXEC, 0o600) }
        defer { for file in files { close(file) } }
        for file in files { try #require(file >= 0 && flock(file, LOCK_EX) == 0) }
        // The kernel hands out its list in pieces: a look misses a lock when others go at the same time.
        for file in files {
            let name = (0..<1000).lazy.compactMap { _ in LockHolder(of: file)?.description }.first
            #expect(name == "another operation of this process")
        }
    }

    @Test("A writer that waited in a directory which was removed is refused")
    func aRemovedDirectoryIsNotWrittenTo() throws {
        let directory = try TemporaryDirectory()
        let root = try SafeDirectory.create(directory["state"], FileSystem())
        var files = FileSystem()
        files.create = { [path = root.path] parent, name, flags in
            let descriptor = FileSystem().create(parent, name, flags)
            unlink("\(path)/\(name)")
            rmdir(path)
            return descriptor
        }
        #expect {
            _ = try StoreLock(in: root, timeout: .zero, files)
        } throws: {
            ($0 as? SafeDirectory.Refusal)?.reason == "\(root.path) was removed by another process; try again"
        }
    }
}
