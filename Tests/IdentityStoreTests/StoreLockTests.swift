import Dispatch
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct StoreLockTests {
    @Test func isHeldByOneAtATime() throws {
        let directory = try TemporaryDirectory()
        let holders = Mutex((now: 0, most: 0, all: 0))
        DispatchQueue.concurrentPerform(iterations: 16) { _ in
            guard let root = try? SafeDirectory.open(directory.path), let lock = try? StoreLock(in: root) else {
                return
            }
            holders.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1), $0.all + 1) }
            holders.withLock { $0.now -= 1 }
            withExtendedLifetime(lock) {}
        }
        #expect(holders.withLock { $0.most } == 1)
        #expect(holders.withLock { $0.all } == 16)
    }

    @Test func givesUpWhenAnotherProcessHoldsIt() throws {
        let directory = try TemporaryDirectory()
        let root = try #require(try SafeDirectory.open(directory.path))
        // flock(1) holds the lock for as long as the shell, which says that it has it, waits for our end of the pipe.
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = ["flock", directory[".lock"], "sh", "-c", "echo locked; read line"]
        let (input, output) = (Pipe(), Pipe())
        process.standardInput = input
        process.standardOutput = output
        let end = DispatchSemaphore(value: 0)
        process.terminationHandler = { _ in end.signal() }
        try process.run()
        #expect(try output.fileHandleForReading.read(upToCount: 7) == Data("locked\n".utf8))

        let start = ContinuousClock.now
        let patience = Duration.milliseconds(50)
        #expect {
            _ = try StoreLock(in: root, patience: patience)
        } throws: {
            ($0 as? SafeDirectory.Refusal)?.reason.contains("another process has held \(directory[".lock"])") == true
        }
        #expect(ContinuousClock.now - start >= patience)

        try input.fileHandleForWriting.close()
        #expect(end.wait(timeout: .now() + 10) == .success)
        _ = try StoreLock(in: root, patience: .seconds(10))
    }
}
