import Dispatch
import Foundation
import Synchronization
import Testing

@testable import CertificateProviding

@Suite struct WorkerThreadsTests {
    /// Starts real threads and counts them.
    private final class Counter: Sendable {
        let started = Atomic(0)

        func threads(maximum: Int) -> WorkerThreads {
            WorkerThreads(maximum: maximum) { [self] threads in
                started.add(1, ordering: .sequentiallyConsistent)
                return WorkerThreads.startThread(threads)
            }
        }
    }

    @Test func runsNoMoreThanTheMaximumAtATime() {
        let counter = Counter()
        let threads = counter.threads(maximum: 3)
        let running = Mutex((now: 0, most: 0))
        let (entered, open, done) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchGroup())
        for _ in 1...12 {
            done.enter()
            threads.submit {
                running.withLock { $0 = ($0.now + 1, max($0.most, $0.now + 1)) }
                entered.signal()
                open.wait()
                running.withLock { $0.now -= 1 }
                done.leave()
            }
        }
        for _ in 1...3 { #expect(entered.wait(timeout: .now() + 600) == .success) }
        for _ in 1...12 { open.signal() }
        #expect(done.wait(timeout: .now() + 600) == .success)
        #expect(running.withLock { $0.most } == 3)
        #expect(counter.started.load(ordering: .sequentiallyConsistent) == 3)
    }

    @Test("A single thread runs jobs in the order in which they are submitted")
    func oneThreadTakesTheJobsInTurn() {
        let counter = Counter()
        let threads = counter.threads(maximum: 1)
        let order = Mutex<[Int]>([])
        let (open, done) = (DispatchSemaphore(value: 0), DispatchGroup())
        threads.submit { open.wait() }
        for number in 1...5 {
            done.enter()
            threads.submit {
                order.withLock { $0.append(number) }
                done.leave()
            }
        }
        open.signal()
        #expect(done.wait(timeout: .now() + 600) == .success)
        #expect(order.withLock { $0 } == [1, 2, 3, 4, 5])
        // The thread is there for what comes later too, whether it is idle by now or not yet.
        done.enter()
        threads.submit { done.leave() }
        #expect(done.wait(timeout: .now() + 600) == .success)
        #expect(counter.started.load(ordering: .sequentiallyConsistent) == 1)
    }

    @Test func withoutAnyThreadTheSubmitterDoesTheWork() {
        let threads = WorkerThreads(maximum: 4) { _ in false }
        let count = Mutex(0)
        for _ in 1...3 { threads.submit { count.withLock { $0 += 1 } } }
        #expect(count.withLock { $0 } == 3)
    }

    /// The second one counts on the thread that the first one fails to start.
    @Test func noJobIsLeftWhenTwoSubmittersFailTogether() {
        let (arrived, open) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let threads = WorkerThreads(maximum: 4) { _ in
            arrived.signal()
            open.wait()
            return false
        }
        let done = DispatchGroup()
        for _ in 1...2 { done.enter() }
        // A thread of its own: those of Swift's tasks and of Dispatch may all be waiting.
        Thread.detachNewThread { threads.submit { done.leave() } }
        arrived.wait()
        threads.submit { done.leave() }
        open.signal()
        #expect(done.wait(timeout: .now() + 600) == .success)
    }

    @Test func aThreadThatBecomesIdleStandsInForOneThatDoesNotStart() {
        let (arrived, fail) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let starts = Atomic(0)
        let threads = WorkerThreads(maximum: 2) { threads in
            guard starts.add(1, ordering: .sequentiallyConsistent).oldValue > 0 else {
                return WorkerThreads.startThread(threads)
            }
            arrived.signal()
            fail.wait()
            return false
        }
        let (begun, open, done) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchGroup())
        threads.submit {
            begun.signal()
            open.wait()
        }
        begun.wait()
        done.enter()
        Thread.detachNewThread { threads.submit { done.leave() } }
        arrived.wait()
        open.signal()
        #expect(done.wait(timeout: .now() + 600) == .success)
        // Until the thread is idle, most probably.
        usleep(10_000)
        done.enter()
        threads.submit { done.leave() }
        fail.signal()
        #expect(done.wait(timeout: .now() + 600) == .success)
    }

    @Test func jobsThatHangAreNotInTheWayOfOthers() {
        let threads = WorkerThreads(maximum: 16)
        let (open, done) = (DispatchSemaphore(value: 0), DispatchGroup())
        for _ in 1...15 { threads.submit { open.wait() } }
        // The last thread there is.
        for _ in 1...50 {
            done.enter()
            threads.submit { done.leave() }
        }
        #expect(done.wait(timeout: .now() + 600) == .success)
        // The job that a job submits hangs then.
        done.enter()
        WorkerThreads(maximum: 2).submit {
            threads.submit { done.leave() }
            open.wait()
        }
        #expect(done.wait(timeout: .now() + 600) == .success)
        for _ in 1...16 { open.signal() }
    }

    /// Jobs that come while all threads are at work, or just going to sleep.
    @Test func noJobIsLeftBehind() {
        let threads = WorkerThreads(maximum: 4)
        let done = DispatchGroup()
        for round in 1...5000 {
            done.enter()
            threads.submit { done.leave() }
            if round % 7 == 0 { #expect(done.wait(timeout: .now() + 600) == .success) }
        }
        #expect(done.wait(timeout: .now() + 600) == .success)
    }
}
