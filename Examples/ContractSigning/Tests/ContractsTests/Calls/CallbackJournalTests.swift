import CertificateProviding
import CertprovKit
import Contracts
import Foundation
import Synchronization
import Testing

/// Callbacks that are written down before and after.
@Suite struct CallbackJournalTests {
    private let folder: CallFolder
    private let queue: ContractQueue
    private let urls = CallbackURLs(success: Callback("myapp://done?id=1"), error: Callback("myapp://error"))

    init() throws {
        folder = try CallFolder()
        queue = ContractQueue(
            storage: IdentityStore(path: folder["store"]).storage(for: ProviderID("contracts_")),
            documents: DocumentDirectory(path: folder["documents"]))
    }

    private func journal(
        _ records: (any CallbackRecording)? = nil, schemes: Set<String> = ["myapp"], waiting: Duration = .seconds(60)
    ) async throws -> CallbackJournal {
        CallbackJournal(
            records ?? queue, schemes: schemes, opener: URLOpener(try await folder.opener(), waiting: waiting))
    }

    @Test("a callback is opened once, as one argument, and crossed out")
    func once() async throws {
        let journal = try await journal()
        #expect(await journal.tell(.success, to: urls) == nil)
        #expect(await journal.tell(.failure("It is a pity; $(touch x) `id` ' \" & é"), to: urls) == nil)
        #expect(await journal.resume() == [])
        let message = "It%20is%20a%20pity%3B%20%24%28touch%20x%29%20%60id%60%20%27%20%22%20%26%20%C3%A9"
        #expect(try folder.opened() == ["myapp://done?id=1", "myapp://error?message=\(message)"])
        #expect(try queue.state().pendingCallbacks.isEmpty)
    }

    @Test("without a callback nothing is opened")
    func none() async throws {
        #expect(try await journal().tell(.success, to: CallbackURLs()) == nil)
        #expect(try await journal().tell(.failure("m"), to: CallbackURLs(success: urls.success)) == nil)
        #expect(try folder.opened() == [])
    }

    @Test(
        "a scheme that is not configured is not opened",
        arguments: [
            "file:///etc/passwd", "https://example.com", "javascript:alert(1)", "data:,x", "sellsign://sync/full",
            "MYAPP2://x",
        ])
    func otherSchemes(url: String) async throws {
        let callback = try #require(Callback(url))
        let problem = try await journal().tell(.success, to: CallbackURLs(success: callback))
        #expect(problem?.contains("Contracts.callback-schemes") == true)
        #expect(try await journal(schemes: []).tell(.success, to: urls)?.contains("myapp") == true)
        #expect(try folder.opened() == [])
        #expect(try queue.state().pendingCallbacks.isEmpty)
    }

    @Test("what a process has left behind is opened by the next one, once")
    func resumed() async throws {
        try queue.changeState { state throws(ProviderError) in
            state.pendingCallbacks = [
                .init(id: "0-A", url: "myapp://one"), .init(id: "x", url: "myapp://two"),
                .init(id: "3-B", url: "other://three"),
                .init(id: "99-C", url: "myapp://four"),
            ]
        }
        let problems = try await journal().resume()
        #expect(problems.count == 1 && problems[0].contains("other"))
        #expect(try folder.opened() == ["myapp://one", "myapp://two", "myapp://four"])
        #expect(try await journal().resume() == [])
        #expect(try folder.opened().count == 3)
    }

    @Test("one that is being opened is not opened by others")
    func held() async throws {
        try folder.write("", to: "stays")
        let journal = try await journal()
        async let first = journal.tell(.success, to: urls)
        try await until("the callback is opened") { try !folder.opened().isEmpty }
        #expect(await journal.resume() == [])
        #expect(try folder.opened().count == 1)
        try FileManager.default.removeItem(atPath: folder["stays"])
        #expect(await first == nil)
        #expect(try queue.state().pendingCallbacks.isEmpty)
    }

    @Test("one that is written down for later is opened by the next process only when its own has ended")
    func noted() async throws {
        let journal = try await journal()
        var noted: CallbackJournal.Noted? = journal.note(.success, to: urls)
        #expect(await journal.resume() == [])
        #expect(try folder.opened() == [])
        #expect(noted != nil)
        noted = nil
        #expect(await journal.resume() == [])
        #expect(try folder.opened().count == 1)
        let second = journal.note(.success, to: urls)
        #expect(await journal.open(second) == nil)
        #expect(await journal.resume() == [])
        #expect(try folder.opened().count == 2)
    }

    @Test("one that is written down before its event is opened by the next process only where the event has happened")
    func beforeTheEvent() async throws {
        let journal = try await journal()
        let contract = try queue.add(try await ContractFile.read(try QueueHost.fileBytes))
        for hasHappened in [false, true] {
            // Goes with its lease, as with a kill.
            _ = journal.note(.failure("given up"), to: urls, once: .init(contract.id, is: .abandoned))
            if hasHappened { try queue.event(.abandoned, on: contract.id) }
            #expect(await journal.resume() == [])
            #expect(try folder.opened().count == (hasHappened ? 1 : 0))
            #expect(try queue.state().pendingCallbacks.isEmpty)
        }
        // One that is refused in this state, and one of a contract that is gone.
        let noted = journal.note(.success, to: urls, once: .init(contract.id, is: .toValidate))
        journal.cancel(noted)
        #expect(try queue.state().pendingCallbacks.isEmpty)
        _ = journal.note(.success, to: urls, once: .init("00000000-0000-0000-0000-000000000000", is: .toValidate))
        #expect(await journal.resume() == [])
        #expect(try folder.opened().count == 1)
    }

    /// Faults where a kill or a full disk would be.
    private final class FaultyRecords: CallbackRecording {
        private let queue: ContractQueue
        private let left: Mutex<Int>

        /// - Parameter changes: So many changes succeed.
        init(_ queue: ContractQueue, changes: Int) {
            self.queue = queue
            left = Mutex(changes)
        }

        func pendingCallbacks() throws(ProviderError) -> [QueueState.PendingCallback] {
            try queue.pendingCallbacks()
        }
        func changePendingCallbacks(
            _ body: (inout [QueueState.PendingCallback]) -> Void
        ) throws(ProviderError) {
            let isOver = left.withLock { left in
                left -= 1
                return left < 0
            }
            if isOver { throw ProviderError(.storeWriteFailed, "The disk is full.") }
            try queue.changePendingCallbacks(body)
        }
        func leaseCallback(_ slot: Int) throws(ProviderError) -> RecordLease? {
            try queue.leaseCallback(slot)
        }
        func hasHappened(_ condition: QueueState.Condition) throws(ProviderError) -> Bool {
            try queue.hasHappened(condition)
        }
    }

    @Test("what cannot be written down is not opened; what cannot be crossed out is opened again")
    func faults() async throws {
        let before = try await journal(FaultyRecords(queue, changes: 0)).tell(.success, to: urls)
        #expect(before?.contains("disk is full") == true)
        #expect(try folder.opened() == [])
        let after = try await journal(FaultyRecords(queue, changes: 1)).tell(.success, to: urls)
        #expect(after?.contains("disk is full") == true)
        #expect(try folder.opened().count == 1)
        #expect(try await journal().resume() == [])
        #expect(try await journal().resume() == [])
        #expect(try folder.opened() == ["myapp://done?id=1", "myapp://done?id=1"])
    }

    @Test("ten processes and threads at once open each callback once")
    func together() async throws {
        let journal = try await journal()
        await withTaskGroup(of: Void.self) { group in
            for number in 0..<10 {
                group.addTask {
                    _ = await journal.tell(.success, to: CallbackURLs(success: Callback("myapp://\(number)")))
                    _ = await journal.resume()
                }
            }
        }
        #expect(try queue.state().pendingCallbacks.isEmpty)
    }

    @Test("an opener that fails, or is not there, is asked once")
    func failures() async throws {
        let failing = try await folder.program("failing", "exit 3\n")
        for (program, part) in [
            (failing, "status 3"), ("/nowhere/opener", "started"), ("contracts-no-such", "started"),
        ] {
            let journal = CallbackJournal(
                queue, schemes: ["myapp"], opener: URLOpener(program, waiting: .seconds(600)))
            let problem = await journal.tell(.success, to: urls)
            #expect(
                problem?.contains(part) == true && problem?.contains("Contracts.url-opener") == true, "\(problem ?? "")"
            )
            #expect(try queue.state().pendingCallbacks.isEmpty)
        }
    }

    @Test("a program that goes on is not waited for, and not ended")
    func goesOn() async throws {
        try folder.write("", to: "stays")
        #expect(try await journal(waiting: .milliseconds(1)).tell(.success, to: urls) == nil)
        try await until("the callback is opened") { try folder.opened() == ["myapp://done?id=1"] }
        #expect(try queue.state().pendingCallbacks.isEmpty)
        try FileManager.default.removeItem(atPath: folder["stays"])
    }
}
