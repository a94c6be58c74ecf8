import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

/// Several processes use one store and one directory at once.
@Suite struct ConcurrencyTests {
    private static let rounds = TestLength.rounds(100, soak: 2000)
    private static let subjects = ["CN=identity-a", "CN=identity-b"]
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private struct Tally: Sendable {
        var next = 0
        var reads = 0
        var problems: [String] = []
        var seen: [String: Int] = [:]
    }

    @Test func twoWritersAndTheirReadersNeverMeetHalfAnIdentity() throws {
        let (sandbox, out) = (sandbox, sandbox.path + "/out")
        let source = sandbox.path + "/client.p12"
        let files = try ["a", "b"].map { try contents(Fixtures.path("\($0).p12")) }
        let identities = try ["a", "b"].map { try PEMSet(fixture: $0).identity }
        let common = adHoc(source)
        let fetch = ["fetch", "--force", "--json", "--export-key", "--out", out] + common
        // The sizes of a whole entry of either identity: they differ in nothing else that can be seen from outside.
        var sizes: Set<Int> = []
        for bytes in files.reversed() {
            try Data(bytes).write(to: URL(filePath: source), options: .atomic)
            #expect(try sandbox.certprov(fetch).status == 0)
            sizes.insert(try contents(sandbox.entry()).count)
        }
        let (entry, wholeSizes) = (try sandbox.entry(), sizes)

        let tally = Mutex(Tally())
        @Sendable func work(_ worker: Int) {
            while true {
                let round = tally.withLock { tally in
                    defer { tally.next += 1 }
                    return tally.next
                }
                guard round < Self.rounds else { return }
                do {
                    // The same for the two fetches and the two lists of four rounds, so that both are fetched in any case.
                    if round % 2 == 0 {
                        try Data(files[round / 4 % 2]).write(to: URL(filePath: source), options: .atomic)
                    }
                    let isFetch = round % 4 < 2
                    let output = try sandbox.certprov(isFetch ? fetch : ["list", "--json"] + common)
                    let subjects =
                        isFetch
                        ? [try output.document("Identity")["identity"]["subject"].string]
                        : try output.document("IdentityList")["items"].array.map { $0["subject"].string }
                    let isGood =
                        output.status == 0 && output.stderr.isEmpty && !subjects.isEmpty
                        && subjects.allSatisfy { $0.map(Self.subjects.contains) == true }
                    let identity = try contents(out + "/current/identity.pem")
                    tally.withLock { tally in
                        if !isGood { tally.problems.append("round \(round): \(output)") }
                        if !identities.contains(identity) { tally.problems.append("round \(round): a torn identity") }
                        tally.seen[subjects.first.flatMap(\.self) ?? "", default: 0] += 1
                    }
                } catch {
                    tally.withLock { $0.problems.append("round \(round): \(error)") }
                }
            }
        }
        /// Reads without a pause: a gap of microseconds is met by few processes, but by this.
        @Sendable func watch() {
            while tally.withLock({ $0.next < Self.rounds && $0.problems.isEmpty }) {
                let (size, identity) = (try? contents(entry).count, try? contents(out + "/current/identity.pem"))
                if size.map(wholeSizes.contains) != true {
                    tally.withLock { $0.problems.append("an entry of \(size ?? -1) bytes") }
                }
                if identity.map(identities.contains) != true {
                    tally.withLock { $0.problems.append("a torn identity, or none") }
                }
                tally.withLock { $0.reads += 1 }
                usleep(50)
            }
        }
        // A thread of its own, which does not wait for a free core.
        let ended = DispatchSemaphore(value: 0)
        Thread.detachNewThread {
            watch()
            ended.signal()
        }
        DispatchQueue.concurrentPerform(iterations: 3, execute: work)
        ended.wait()
        let result = tally.withLock { $0 }
        #expect(result.problems.isEmpty, "\(result.problems.prefix(3))")
        #expect(result.reads > Self.rounds)
        // Both identities were in the store: the test did what it says.
        for subject in Self.subjects { #expect(result.seen[subject, default: 0] > 0, "\(result.seen)") }
    }

    @Test func theFirstUseOfAStoreByManyMakesOneKey() throws {
        let (sandbox, count) = (sandbox, 8)
        let problems = Mutex<[String]>([])
        // Each with a file of its own, so that every entry must be opened with the key that won.
        for index in 0..<count { _ = try sandbox.copy("a.p12", to: "\(index).p12") }
        DispatchQueue.concurrentPerform(iterations: count) { index in
            let output = try? sandbox.certprov(["fetch"] + adHoc("\(sandbox.path)/\(index).p12"))
            if output?.status != 0 { problems.withLock { $0.append("\(String(describing: output))") } }
        }
        #expect(problems.withLock { $0 } == [])
        for index in 0..<count {
            try sandbox.certprov(["fetch"] + adHoc("\(sandbox.path)/\(index).p12", password: "env:UNSET")).expect()
        }
    }
}
