import HostSockets
import Synchronization
import Testing

@Suite struct TurnsTests {
    private final class Running: Sendable {
        private let counts = Mutex((now: 0, most: 0))
        var most: Int { counts.withLock(\.most) }

        func begin() {
            counts.withLock { counts in
                counts.now += 1
                counts.most = max(counts.most, counts.now)
            }
        }
        func end() { counts.withLock { $0.now -= 1 } }
    }

    @Test("Calls of one user run one after the other, and hold up no other user")
    func turns() async {
        let (turns, running) = (Turns<Int>(), Running())
        await withTaskGroup(of: Void.self) { tasks in
            for _ in 0..<100 {
                tasks.addTask {
                    await turns.run(1) {
                        running.begin()
                        await turns.run(2) { await Task.yield() }
                        running.end()
                    }
                }
            }
        }
        #expect(running.most == 1)
    }
}
