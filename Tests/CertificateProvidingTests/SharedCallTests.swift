import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@Suite final class SharedCallTests: Sendable {
    private let call = SharedCall<Int>()
    private let calls = Mutex(0)

    /// Ends when the test says so, or with its cancellation.
    private func gated(_ gate: AsyncStream<Void>) async throws(ProviderError) -> Int {
        let number = calls.withLock { calls in
            calls += 1
            return calls
        }
        for await _ in gate { break }
        if Task.isCancelled { throw ProviderError(.userCancelled, "Cancelled.") }
        return number
    }

    @Test func callersShareOneResultAndTheNextCallIsAnother() async throws {
        for round in 1...2 {
            let gate = AsyncStream<Void>.makeStream()
            let callers = (0..<16).map { _ in
                Task { try await call.run { () throws(ProviderError) in try await self.gated(gate.stream) } }
            }
            // One that was cancelled does not wait, and disturbs no other.
            callers[3].cancel()
            #expect(await code { _ = try await callers[3].value } == .userCancelled)
            // Late enough for all to have joined.
            while calls.withLock(\.self) < round { await Task.yield() }
            for _ in 0..<1000 { await Task.yield() }
            gate.continuation.finish()
            for (number, caller) in callers.enumerated() where number != 3 { #expect(try await caller.value == round) }
        }
        #expect(calls.withLock(\.self) == 2)
    }

    @Test func withTheLastCallerTheCallIsCancelled() async throws {
        let gate = AsyncStream<Void>.makeStream()
        let callers = (0..<3).map { _ in
            Task { try await call.run { () throws(ProviderError) in try await self.gated(gate.stream) } }
        }
        while calls.withLock(\.self) < 1 { await Task.yield() }
        for caller in callers { caller.cancel() }
        for caller in callers { #expect(await code { _ = try await caller.value } == .userCancelled) }
        // A new call is made.
        let next = AsyncStream<Void>.makeStream()
        next.continuation.finish()
        let number = try await call.run { () throws(ProviderError) in try await self.gated(next.stream) }
        // One that began late was a call of its own, and cancelled too.
        #expect(number > 1 && number == calls.withLock(\.self))
    }

    /// One who comes while a cancelled call still works gets a call of its own.
    @Test func aLateCallerIsNotCancelledToo() async throws {
        let gate = AsyncStream<Void>.makeStream()
        let stubborn = Task {
            try await call.run { () async throws(ProviderError) in
                self.calls.withLock { $0 += 1 }
                await Task.detached { for await _ in gate.stream {} }.value
                throw ProviderError(.userCancelled, "Cancelled.")
            }
        }
        while calls.withLock(\.self) < 1 { await Task.yield() }
        stubborn.cancel()
        let late = Task { try await call.run { () throws(ProviderError) in 7 } }
        for _ in 0..<1000 { await Task.yield() }
        gate.continuation.finish()
        #expect(try await late.value == 7)
        #expect(await code { _ = try await stubborn.value } == .userCancelled)
    }

    /// The cancellation may come between the beginning of the wait and the look whether there was one, in one of some hundred
    /// rounds.
    @Test func theCallerWhoCancelsTheCallWaitsForItsEnd() async {
        let isEarly = Flag()
        await withCheckedContinuation { continuation in
            // Not in a task, which would keep one of their few threads.
            Thread.detachNewThread {
                for round in 0..<TestLength.rounds(2000, soak: 20_000) { self.cancel(after: round % 200, isEarly) }
                continuation.resume()
            }
        }
        #expect(!isEarly.isSet)
    }

    private func cancel(after pause: Int, _ isEarly: Flag) {
        let (hasBegun, isOver, hasReturned) = (Flag(), Flag(), Flag())
        let caller = Task {
            hasBegun.set()
            _ = try? await call.run { () async throws(ProviderError) in
                try? await Task.sleep(for: .seconds(3600))
                isOver.set()
                throw ProviderError(.userCancelled, "Cancelled.")
            }
            if !isOver.isSet { isEarly.set() }
            hasReturned.set()
        }
        while !hasBegun.isSet { sched_yield() }
        for _ in 0..<pause { _ = hasBegun.isSet }
        caller.cancel()
        while !hasReturned.isSet { sched_yield() }
    }

    private final class Flag: Sendable {
        private let value = Atomic(false)
        var isSet: Bool { value.load(ordering: .acquiring) }
        func set() { value.store(true, ordering: .releasing) }
    }
}
