import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore
@testable import SigningRequests

@Suite(.timeLimit(.minutes(30))) struct PendingRequestsTests {
    private let fixture: RequestsFixture
    private let requests: PendingRequests
    private let data = Array("%PDF-1.7 some document".utf8)

    init() throws {
        fixture = try RequestsFixture()
        requests = PendingRequests(directory: fixture.path)
    }

    private typealias Fixture = RequestsFixture

    private func admit(client: Int = 1, isQueued: Bool = true, text: String = "text") throws -> PendingRequest {
        try requests.admit(Fixture.question(data, client: client, text: text), data: data, isQueued: isQueued)
    }

    /// The folders of requests, also those that are made or removed.
    private var folders: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: fixture.path + "/pending"))?.filter { $0 != ".lock" }
            ?? []
    }

    private func waitUntil(_ isSo: () throws -> Bool) rethrows {
        let end = ContinuousClock.now + .seconds(300)
        while try !isSo(), .now < end { usleep(2000) }
    }

    @Test("A request waits in a folder of its owner's, and goes with its last reference")
    func theFolder() throws {
        var request: PendingRequest? = try requests.admit(
            Fixture.question(data), data: data, logo: ("png", [1, 2, 3]), isQueued: true)
        let question = try #require(request?.question)
        #expect(question.id.count == 6 && folders == [question.id])
        let folder = fixture.path + "/pending/" + question.id
        let modes = try FileManager.default.contentsOfDirectory(atPath: folder).sorted().map {
            "\($0) \(String(FileStatus(folder + "/" + $0)?.permissions ?? 0, radix: 8))"
        }
        #expect(modes == ["document.pdf 400", "logo.png 400", "question.json 600", "waiting 600"])
        #expect(FileStatus(folder)?.permissions == 0o700)
        #expect(question.documentPath == folder + "/document.pdf" && question.logoPath == folder + "/logo.png")
        #expect(try contents(folder + "/document.pdf") == data && contents(folder + "/logo.png") == [1, 2, 3])
        #expect(try request?.data() == data)
        #expect(try requests.list() == [.init(question: question, state: .waiting)])
        #expect(try requests.waiting(question.id).question == question)
        request = nil
        #expect(try requests.list().isEmpty && folders.isEmpty)
        #expect(try failure { _ = try requests.waiting(question.id) }.code == .notFound)
    }

    private func contents(_ path: String) throws -> [UInt8] { Array(try Data(contentsOf: URL(filePath: path))) }

    @Test("Data that was changed while the request waited is not signed")
    func changedData() throws {
        let request = try admit()
        let file = try #require(request.question.documentPath)
        for change in [data + [0x20], data.dropLast(), [0x40] + data.dropFirst(), []] {
            chmod(file, 0o600)
            try Data(change).write(to: URL(filePath: file))
            chmod(file, 0o600)
            #expect(try failure { _ = try request.data() }.code == .storeReadFailed)
        }
        unlink(file)
        #expect(try failure { _ = try request.data() }.code == .storeReadFailed)
        symlink("/etc/passwd", file)
        #expect(try failure { _ = try request.data() }.code == .storeReadFailed)
        request.remove()
        #expect(try failure { _ = try request.data() }.code == .storeReadFailed)
        #expect(folders.isEmpty)
    }

    private func refusal(_ body: () throws -> Void) -> PendingRequests.Refusal? {
        do { try body() } catch { return error as? PendingRequests.Refusal }
        return nil
    }

    @Test("Two requests of a client wait, and eight of all") func limits() throws {
        var waiting: [PendingRequest] = []
        for client in 1...4 {
            waiting += [try admit(client: client), try admit(client: client)]
            guard case .tooMany(let reason)? = refusal({ _ = try admit(client: client) }) else {
                Issue.record("client \(client)")
                continue
            }
            #expect(reason.contains(client == 4 ? "8 requests" : "2 requests of this client"), "\(reason)")
        }
        if case .tooMany? = refusal({ _ = try admit(client: 5) }) {} else { Issue.record("the ninth") }
        waiting.removeFirst().remove()
        waiting.append(try admit(client: 5))
        #expect(try requests.list().count == 8)
    }

    @Test("The first answer counts") func theFirstAnswerCounts() async throws {
        let request = try admit()
        async let answer = QueuePrompt(requests).answer(to: request.question, within: .seconds(300))
        // Many at once.
        let question = request.question
        let requests = requests
        typealias Outcome = (Bool, ProviderError.Code?)
        let outcomes = await withTaskGroup(of: Outcome.self) { group async -> [Outcome] in
            for index in 0..<8 {
                group.addTask {
                    do throws(ProviderError) {
                        try requests.decide(question, approve: index.isMultiple(of: 2))
                    } catch {
                        return (index.isMultiple(of: 2), error.code)
                    }
                    return (index.isMultiple(of: 2), nil)
                }
            }
            var outcomes: [(Bool, ProviderError.Code?)] = []
            for await outcome in group { outcomes.append(outcome) }
            return outcomes
        }
        let winners = outcomes.filter { $0.1 == nil }
        #expect(winners.count == 1, "\(outcomes)")
        #expect(outcomes.allSatisfy { $0.1 == nil || $0.1 == .operationNotAllowed })
        #expect(try await answer == (winners.first?.0 == true ? .approved : .declined))
        #expect(try requests.list().map(\.state) == [.answered])
    }

    @Test("An answer that comes before the wait counts, and a writer that says nothing does not end it")
    func earlyAnswer() async throws {
        let request = try admit()
        let pipe = open(fixture.path + "/pending/\(request.question.id)/waiting", O_WRONLY | O_NONBLOCK)
        #expect(pipe >= 0)
        close(pipe)
        try requests.decide(request.question, approve: false)
        #expect(try await QueuePrompt(requests).answer(to: request.question, within: .seconds(300)) == .declined)
    }

    @Test("After the time no answer counts, and who gives one is told so") func late() async throws {
        let request = try admit()
        #expect(try await QueuePrompt(requests).answer(to: request.question, within: .zero) == .timedOut)
        let error = try failure { try requests.decide(request.question, approve: true) }
        #expect(error.code == .operationNotAllowed && error.message.contains("its time is up"), "\(error)")
    }

    @Test("A wait ends with its task") func cancellation() async throws {
        let request = try admit()
        let prompt = QueuePrompt(requests)
        let question = request.question
        let task = Task { try await prompt.answer(to: question, within: .seconds(300)) }
        task.cancel()
        let result = await task.result
        #expect(throws: ProviderError.self) { try result.get() }
        #expect(try failure { try requests.decide(question, approve: true) }.code == .operationNotAllowed)
    }

    @Test("An answer to other data does not count") func otherData() async throws {
        let request = try admit()
        var other = request.question
        other.digest = Fixture.digest([1])
        #expect(try failure { try requests.decide(other, approve: true) }.code == .notFound)
        let pipe = open(fixture.path + "/pending/\(other.id)/waiting", O_WRONLY | O_NONBLOCK)
        let text = PendingRequests.answer(to: other, approve: true)
        #expect(write(pipe, text, text.utf8.count) == text.utf8.count)
        close(pipe)
        let question = request.question
        await #expect(throws: ProviderError.self) {
            try await QueuePrompt(requests).answer(to: question, within: .seconds(300))
        }
    }

    @Test("A request that is asked about elsewhere takes no answer of the queue")
    func askedElsewhere() throws {
        let request = try admit(isQueued: false)
        #expect(try requests.list().map(\.state) == [.askedElsewhere])
        let error = try failure { try requests.decide(request.question, approve: true) }
        #expect(error.code == .operationNotAllowed && error.message.contains("answer it there"), "\(error)")
    }

    @Test(
        "An id that is none finds nothing", arguments: ["", ".", "..", "../x", "aaaaaa", "ä", ".lock", "a\n\u{1b}[2Jb"])
    func wrongIDs(id: String) throws {
        let request = try admit()
        let error = try failure { _ = try requests.waiting(id) }
        #expect(error.code == .notFound && error.message == error.message.withVisibleControls)
        var question = request.question
        question.id = id
        #expect(try failure { try requests.decide(question, approve: true) }.code == .notFound)
        let long = try failure { _ = try requests.waiting(String(repeating: id + "x", count: 20_000)) }
        #expect(long.message.utf8.count < 1000)
    }

    @Test("A disk that fails leaves no request behind, and no place taken", arguments: RequestsFixture.calls)
    func faults(call: String) throws {
        var failures = 0
        for position in 1...30 {
            let faulty = PendingRequests(
                directory: fixture.path, files: Fixture.disk(failing: call, at: position, with: ENOSPC))
            let refusal = refusal {
                _ = try faulty.admit(Fixture.question(data), data: data, logo: ("gif", [1]), isQueued: true)
            }
            guard let refusal else { break }
            failures += 1
            #expect("\(refusal)".contains("storeWriteFailed") && "\(refusal)".contains("No space left"), "\(refusal)")
            #expect(folders.isEmpty, "\(call) \(position)")
        }
        #expect((1..<30).contains(failures))
        // A folder whose rename at the end has failed is removed by the next look.
        #expect(try requests.list().isEmpty && folders.isEmpty)
    }

    @Test("Long texts are cut, and a question that cannot be read is passed over") func hostileTexts() throws {
        let text = String(repeating: "\u{1b}]0;x\u{7}\u{202e}\n", count: 15_000)
        let request = try admit(text: text)
        #expect(request.question.serviceName.unicodeScalars.count == 1024)
        #expect(try requests.list().map(\.question) == [request.question])
        for junk in ["", "{}", "[", "\u{0}", String(repeating: "[", count: 100_000)] {
            try Data(junk.utf8).write(to: URL(filePath: fixture.path + "/pending/\(request.question.id)/question.json"))
            #expect(try requests.list().isEmpty)
        }
    }

    // MARK: - Processes

    private func waiter(_ client: Int, _ count: Int = 1, through program: [String] = []) throws -> Subprocess {
        try fixture.start(
            "wait", "\(client)", "\(count)", through: program,
            with: ["DIGEST": Fixture.digest(Array("%PDF-1.7 \(client)".utf8)), "CLIENT_NAME": "Shop", "TEXT": "t"])
    }

    @Test("Limits hold over all processes, and another process answers") func severalProcesses() throws {
        let processes = try (0..<12).map { try waiter($0 % 6) }
        let first = processes.compactMap { $0.readLine() }
        #expect(first.filter { $0.hasPrefix("waits ") }.count == 8, "\(first)")
        #expect(first.filter { $0.hasPrefix("tooMany: ") }.count == 4)
        for waiting in try requests.list() { try requests.decide(waiting.question, approve: true) }
        let answers = processes.compactMap { $0.readLine() }
        #expect(answers == Array(repeating: "approved", count: 8), "\(answers)")
        for process in processes { #expect(process.wait(seconds: 300) == 0) }
        #expect(folders.isEmpty)
    }

    @Test("A request goes with its process, and its place is free") func aKilledProcess() throws {
        let processes = [try waiter(1), try waiter(1)]
        let lines = processes.compactMap { $0.readLine() }
        #expect(lines.count == 2 && folders.count == 2)
        let questions = try requests.list().map(\.question)
        for process in processes {
            process.kill()
            _ = process.wait(seconds: 300)
        }
        for question in questions {
            #expect(try failure { try requests.decide(question, approve: true) }.code == .notFound)
        }
        #expect(folders.isEmpty)
        let third = try admit()
        #expect(try requests.list().map(\.question) == [third.question])
    }

    @Test("A kill at any moment leaves nothing that takes a place", .enabled(if: TestLength.hasSeconds))
    func kills() throws {
        for _ in 0..<TestLength.rounds(12, full: 30, soak: 300) {
            let process = try waiter(1, 100)
            // Answered here: a task would need a thread of a pool that other tests may hold.
            for _ in 0..<Int.random(in: 0...4) {
                _ = process.readLine()
                for waiting in try requests.list() { try? requests.decide(waiting.question, approve: true) }
            }
            usleep(.random(in: 0...3000))
            process.kill()
            _ = process.wait(seconds: 300)
            try expectFree("at random")
        }
        guard (try? Subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"])) != nil else {
            return print("PendingRequestsTests: processes cannot be traced here, so a kill at each call is NOT TESTED.")
        }
        var landed = 0
        for call in ["mkdirat", "write", "fchmod", "fsync", "mknodat", "?renameat,?renameat2", "unlinkat"] {
            for step in 1...40 {
                let process = try waiter(
                    1,
                    through: [
                        "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=\(call)", "-e",
                        "inject=\(call):signal=KILL:when=\(step)",
                    ])
                var isOver = false
                while let line = process.readLine() {
                    isOver = line == "approved"
                    if line.hasPrefix("waits ") {
                        for waiting in try requests.list() { try? requests.decide(waiting.question, approve: true) }
                    }
                }
                let end = process.wait(seconds: 300)
                try expectFree("before \(call) number \(step)")
                if end == 0, isOver { break }
                landed += 1
            }
        }
        #expect(landed >= 12, "\(landed)")
    }

    private func expectFree(_ place: String) throws {
        let both = [try admit(), try admit()]
        #expect(try requests.list().count == 2, "\(place)")
        both.forEach { $0.remove() }
        #expect(folders.isEmpty, "\(place): \(folders)")
    }

    @Test("One question is on the screen at a time, over all processes") func turns() async throws {
        let processes = try (0..<4).map { _ in try fixture.start("lock", "5") }
        var lines: [String] = []
        for process in processes { while let line = process.readLine() { lines.append(line) } }
        #expect(lines.filter { $0 == "asks" }.count == 20 && lines.filter { $0 == "over" }.count == 20, "\(lines)")

        let holder = try fixture.start("lock", "1", with: ["HOLD": "1"])
        #expect(holder.readLine() == "asks")
        #expect(try await TerminalLock.acquire(in: fixture.path, within: .zero) == nil)
        #expect(try await TerminalLock.acquire(in: fixture.path, within: .milliseconds(150)) == nil)
        let path = fixture.path
        let task = Task { try await TerminalLock.acquire(in: path, within: .seconds(300)) != nil }
        task.cancel()
        let cancelled = await task.result
        #expect(throws: ProviderError.self) { try cancelled.get() }
        let next = Task { try await TerminalLock.acquire(in: path, within: .seconds(300)) != nil }
        holder.kill()
        #expect(try await next.value)
    }
}
