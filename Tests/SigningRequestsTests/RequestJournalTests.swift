import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import IdentityStore
@testable import SigningRequests

@Suite struct RequestJournalTests {
    private let fixture: RequestsFixture

    init() throws { fixture = try RequestsFixture() }

    private typealias Fixture = RequestsFixture

    @Test("A line has every key in order, and the outcome is replaced in place")
    func theFormat() throws {
        let journal = fixture.journal()
        try journal.append(Fixture.entry("data", .init(.operationCanceled), approver: nil))
        let refused = try fixture.lines()[0]
        let digest = Fixture.digest(Array("data".utf8))
        #expect(
            refused
                == #"{"approver":null,"client":1,"digest":"\#(digest)","fingerprint":"00ff","operation":"sign-pdf","#
                + #""outcome":"operation-canceled","peer":"pid 1","requestID":null,"time":"\#(JournalEntry.text(of: Fixture.now))"}"#
        )
        let open = try journal.begin(Fixture.entry(requestID: "r"))
        let before = try #require(fixture.bytes())
        #expect(try journal.entries(newest: 1).entries.map(\.outcome) == [.interrupted])
        #expect(try journal.lastSigned(digest) == nil)
        for outcome in [JournalEntry.Outcome(.challengeProcessingError), .init(.timestampRequestError), .signed] {
            try open.finish(outcome: outcome)
            let after = try #require(fixture.bytes())
            #expect(
                after.count == before.count
                    && after.prefix(refused.utf8.count + 1) == before.prefix(refused.utf8.count + 1))
            #expect(try journal.entries(newest: 9).entries.map(\.outcome) == [.init(.operationCanceled), outcome])
        }
        #expect(try journal.lastSigned(digest) == Fixture.now)
        let (file, folder) = (FileStatus(fixture.path + "/journal.jsonl"), FileStatus(fixture.path))
        #expect(file?.permissions == 0o600 && folder?.permissions == 0o700)
    }

    @Test("An outcome is within a sector of the disk, so that it is the old one or the new one after a power failure")
    func sectors() throws {
        let journal = fixture.journal()
        for index in 0..<100 {
            try journal.begin(Fixture.entry(requestID: String(repeating: "x", count: index))).finish(outcome: .signed)
        }
        let bytes = try #require(fixture.bytes())
        var (rest, count) = (bytes[...], 0)
        while let key = rest.firstRange(of: Array(#""outcome":"#.utf8)) {
            #expect(key.upperBound / 512 == (key.upperBound + 39) / 512)
            rest = rest[key.upperBound...]
            count += 1
        }
        #expect(count == 100)
        let read = try journal.entries(newest: 1000)
        #expect(read.entries.count == 100 && read.damaged == 0 && read.entries.allSatisfy { $0.outcome == .signed })
        #expect(try journal.entries(newest: 7).entries == Array(read.entries.suffix(7)))
    }

    @Test("A signature of the last day is found by its data and client; a clock that was set back counts as recent")
    func whatWasSigned() throws {
        let digest = Fixture.digest(Array("data".utf8))
        let day = Duration.seconds(86_400)
        try fixture.journal().begin(Fixture.entry()).finish(outcome: .signed)
        func wasSigned(_ digest: String, _ client: Int, after seconds: Double) throws -> Bool {
            try fixture.journal(at: Fixture.now + seconds).wasSigned(digest, client: client, within: day)
        }
        for seconds in [-1e9, -1, 0, 1, 86_399] { #expect(try wasSigned(digest, 1, after: seconds), "\(seconds)") }
        for seconds in [86_400, 86_401, 1e9] { #expect(try !wasSigned(digest, 1, after: seconds), "\(seconds)") }
        #expect(try !wasSigned(digest, 2, after: 0))
        #expect(try !wasSigned(Fixture.digest([1]), 1, after: 0))
        // A refusal does not count. After an interruption there may be a signature.
        let other = Fixture.digest(Array("other".utf8))
        try fixture.journal().append(Fixture.entry("other", .init(.validateRequestError)))
        try fixture.journal().begin(Fixture.entry("other")).finish(outcome: .init(.signDocumentError))
        #expect(try !wasSigned(other, 1, after: 0))
        _ = try fixture.journal().begin(Fixture.entry("other"))
        #expect(
            try wasSigned(other, 1, after: 0) && !wasSigned(other, 1, after: 86_400) && !wasSigned(other, 2, after: 0))
        #expect(try fixture.journal().lastSigned(other) == nil)
    }

    @Test("Approvals without a person are counted for one client and an hour")
    func unattendedApprovals() throws {
        for seconds in [-3601.0, -3600, -3599, 0, 5] {
            try fixture.journal().begin(
                Fixture.entry(at: Fixture.now + seconds, approver: JournalEntry.unattended)
            )
            .finish(outcome: .init(.signDocumentError))
        }
        try fixture.journal().append(Fixture.entry(client: 11, approver: JournalEntry.unattended))
        try fixture.journal().append(Fixture.entry(approver: nil))
        let hour = Duration.seconds(3600)
        #expect(try fixture.journal().unattendedApprovals(client: 1, within: hour) == 3)
        #expect(try fixture.journal().unattendedApprovals(client: 11, within: hour) == 1)
        #expect(try fixture.journal().unattendedApprovals(client: 111, within: hour) == 0)
    }

    @Test(
        "A part of a line, and other damage, costs no other line",
        arguments: ["{\"approver\":", "\u{0}\u{0}", "{}\n\n[[", "x"])
    func damage(torn: String) throws {
        let journal = fixture.journal()
        try journal.append(Fixture.entry())
        let file = open(fixture.path + "/journal.jsonl", O_WRONLY | O_APPEND)
        #expect(write(file, torn, torn.utf8.count) == torn.utf8.count)
        close(file)
        try journal.begin(Fixture.entry("second")).finish(outcome: .signed)
        let (entries, damaged) = try journal.entries(newest: 100)
        #expect(entries.count == 2 && damaged == torn.split(separator: "\n", omittingEmptySubsequences: false).count)
        #expect(try journal.lastSigned(Fixture.digest(Array("second".utf8))) != nil)
    }

    @Test("A journal that others could have written is neither written nor read")
    func unsafeJournals() throws {
        let file = fixture.path + "/journal.jsonl"
        try fixture.journal().append(Fixture.entry())
        func expectRefused(_ what: String) throws {
            let journal = fixture.journal()
            let written = try failure { _ = try journal.begin(Fixture.entry()) }
            #expect(written.code == .storeWriteFailed, "\(what): \(written)")
            let read = try failure { _ = try journal.lastSigned(Fixture.digest([])) }
            #expect(read.code == .storeReadFailed, "\(what): \(read)")
        }
        for mode: mode_t in [0o620, 0o602, 0o644] {
            chmod(file, mode)
            try expectRefused("mode \(String(mode, radix: 8))")
        }
        chmod(file, 0o600)
        chmod(fixture.path, 0o770)
        try expectRefused("directory")
        chmod(fixture.path, 0o700)
        rename(file, file + ".old")
        symlink(file + ".old", file)
        try expectRefused("link")
        unlink(file)
        mkfifo(file, 0o600)
        try expectRefused("pipe")
        unlink(file)
        mkdir(file, 0o700)
        try expectRefused("directory in its place")
        rmdir(file)
        if geteuid() == 0 {
            try fixture.directory.write([], to: fixture.journalFile)
            chown(file, 65534, 65534)
            try expectRefused("another user's")
        }
    }

    @Test("A disk that fails leaves the journal as it was, and nothing may be signed", arguments: RequestsFixture.calls)
    func faults(call: String) throws {
        try fixture.journal().append(Fixture.entry())
        let before = fixture.bytes()
        var failures = 0
        for position in 1...3 {
            let journal = fixture.journal(files: Fixture.disk(failing: call, at: position, with: ENOSPC))
            do { _ = try journal.begin(Fixture.entry("second")) } catch {
                #expect(error.code == .storeWriteFailed && error.message.contains("No space left"), "\(error)")
                #expect(fixture.bytes() == before, "\(call) \(position)")
                failures += 1
                continue
            }
            break
        }
        #expect(failures > 0 || ["changeMode", "rename", "makeDirectory"].contains(call))
    }

    @Test("A failure of the outcome is an error, and the line stays interrupted")
    func theOutcomeIsNotWritten() throws {
        let journal = fixture.journal(files: Fixture.disk(failing: "synchronize", at: 4, with: EIO))
        // The directory, its parent or the file: three at most are flushed before.
        let open = try journal.begin(Fixture.entry())
        var error: ProviderError?
        for _ in 0..<4 where error == nil {
            do { try open.finish(outcome: .signed) } catch let failure { error = failure }
        }
        #expect(error?.code == .storeWriteFailed)
        unlink(fixture.path + "/journal.jsonl")
        #expect(try failure { try open.finish(outcome: .signed) }.message.contains("was removed"))
    }

    @Test("Hostile texts are cut and escaped, and a line has at most 4 KiB")
    func hostileTexts() throws {
        let journal = fixture.journal()
        let controls = String(String.UnicodeScalarView((0..<0xa0).compactMap { Unicode.Scalar($0) }))
        let texts = [
            String(repeating: "\u{1b}[2J\r\n\u{202e}\u{9b}\u{7f}", count: 20_000), controls,
            String(repeating: "\"\\outcome\":\"signed\",", count: 5000),
            "e" + String(repeating: "\u{301}", count: 100_000),
            "\"outcome\":\"signed\"", "😀", "",
        ]
        for text in texts {
            try journal.begin(Fixture.entry(requestID: text, peer: text)).finish(outcome: .init(.signDocumentError))
        }
        let bytes = try #require(fixture.bytes())
        #expect(bytes.split(separator: 0x0a).allSatisfy { $0.count < 4096 })
        #expect(try fixture.lines().count == texts.count)
        // As it would be on a terminal.
        let text = String(decoding: bytes, as: UTF8.self)
        #expect(text == text.withEscapedControls && !text.contains("\u{1b}"))
        let (entries, damaged) = try journal.entries(newest: 100)
        #expect(damaged == 0 && entries.map(\.peer) == texts.map { $0.cut(toBytes: 256) })
        #expect(entries.map(\.requestID) == texts.map { $0.cut(toBytes: 128) })
        #expect(entries.allSatisfy { $0.peer.utf8.count <= 256 && $0.requestID?.utf8.count ?? 0 <= 128 })
        #expect(entries.allSatisfy { $0.outcome == .init(.signDocumentError) })
        #expect(try journal.lastSigned(Fixture.digest(Array("data".utf8))) == nil)
    }

    @Test func theTextOfATime() {
        for seconds in [-62_135_596_800.0, -1, 0, 951_782_400, 1_795_863_600, 253_402_300_799] {
            let date = Date(timeIntervalSince1970: seconds)
            #expect(JournalEntry.time(of: JournalEntry.text(of: date)) == date)
        }
        #expect(JournalEntry.text(of: Fixture.now) == "2026-11-28T11:00:00Z")
        for wrong in [
            "", "2026-11-31T11:00:00Z", "2026-11-28 11:00:00Z", "2026-11-28T25:00:00Z", "2026-11-28T11:00:0xZ",
        ] {
            #expect(JournalEntry.time(of: wrong) == nil)
        }
    }

    // MARK: - Much

    /// A journal whose lines are all of one time, about so many bytes long.
    private func fill(_ size: Int, at time: Date, approver: String?) throws {
        try fixture.journal().append(Fixture.entry("first"))
        let line = try Fixture.entry("filler", at: time, approver: approver, peer: String(repeating: "p", count: 200))
            .line(width: 0).bytes
        let block = [UInt8]((0..<2000).map { _ in line }.joined())
        let file = open(fixture.path + "/journal.jsonl", O_WRONLY | O_APPEND)
        defer { close(file) }
        for _ in 0...(size / block.count) { #expect(write(file, block, block.count) == block.count) }
    }

    @Test("64 MiB of journal are searched in a few MiB of memory", .enabled(if: TestLength.hasSeconds))
    func muchMemory() throws {
        // An hour and a day ago there were very many unattended approvals.
        try fill(70 << 20, at: Date() - 90_000, approver: JournalEntry.unattended)
        try fixture.journal().begin(Fixture.entry("last", at: Date(), approver: JournalEntry.unattended))
            .finish(outcome: .signed)
        for (name, expected) in [("last", "true 1"), ("filler", "false 1"), ("nothing", "false 1")] {
            let process = try fixture.start("ask", Fixture.digest(Array(name.utf8)))
            let answer = try #require(process.readLine())
            #expect(answer.hasPrefix(expected), "\(name): \(answer)")
            let growth = answer.split(separator: " ").last.flatMap { Int($0) }
            #expect(try #require(growth) < 16 << 10, "\(answer)")
        }
        #expect(try fixture.journal().entries(newest: 3).entries.map(\.outcome) == [.signed, .signed, .signed])
    }

    // MARK: - Many requests

    @Test(
        "A client that only asks has 30 lines a minute, and the next one says how many are missing; signatures have theirs"
    )
    func linesPerMinute() throws {
        let time = Mutex(Fixture.now)
        let journal = RequestJournal(directory: fixture.path, now: { time.withLock(\.self) })
        func append(client: Int = 1) throws {
            let entry = Fixture.entry(
                client: client, at: time.withLock(\.self), .init(.validateRequestError), approver: nil,
                requestID: String(repeating: "\u{e0041}", count: 128))
            try journal.append(entry)
        }
        func entries() throws -> [JournalEntry] { try journal.entries(newest: 1000).entries }
        for _ in 0..<500 { try append() }
        #expect(try entries().count == 30 && fixture.bytes()?.count ?? 0 < 30 * 1024)
        try append(client: 2)
        try append(client: 11)
        #expect(try entries().suffix(2).map(\.client) == [2, 11])
        try journal.begin(Fixture.entry("signed", at: time.withLock(\.self))).finish(outcome: .signed)
        #expect(try entries().last?.outcome == .signed)
        time.withLock { $0 += 59 }
        try append()
        #expect(try entries().count == 33)
        time.withLock { $0 += 1 }
        try append()
        try append()
        #expect(
            try entries().suffix(2).map(\.omitted) == [471, 0] && entries().dropLast(2).allSatisfy { $0.omitted == 0 })
    }

    private static let small = RequestJournal.Limits(file: 4096, older: 8192, linesPerMinute: .max)

    @Test(
        "Signatures, interruptions and approvals without a person of the last day survive every rotation; the rest is bounded"
    )
    func rotation() throws {
        func digest(_ text: String) -> String { Fixture.digest(Array(text.utf8)) }
        func flood(after seconds: Double) throws {
            for _ in 0..<150 {
                let entry = Fixture.entry(
                    "flood", at: Fixture.now + seconds, .init(.validateRequestError), approver: nil)
                try journal(seconds).append(entry)
            }
        }
        func expectBounded() throws {
            let files = try fixture.journalFiles()
            #expect(files.count > 1 && files.values.reduce(0, +) < 26_000, "\(files)")
        }
        let day = Duration.seconds(86_400)
        try journal(0).begin(Fixture.entry("signed")).finish(outcome: .signed)
        try flood(after: 1)
        _ = try journal(2).begin(Fixture.entry("interrupted", at: Fixture.now + 2))
        try flood(after: 3)
        let slow = try journal(4).begin(Fixture.entry("slow", at: Fixture.now + 4, approver: JournalEntry.unattended))
        try flood(after: 5)
        // Its line is in an older file by now.
        try slow.finish(outcome: .signed)
        try flood(after: 86_000)
        try expectBounded()
        let late = journal(86_000)
        for text in ["signed", "interrupted", "slow"] {
            #expect(try late.wasSigned(digest(text), client: 1, within: day), "\(text)")
        }
        #expect(try late.lastSigned(digest("slow")) == Fixture.now + 4)
        #expect(try late.unattendedApprovals(client: 1, within: day) == 1)
        #expect(try !late.wasSigned(digest("flood"), client: 1, within: day))
        guard case .repeated = try late.beginUnattended(Fixture.entry("signed"), perHour: 100) else {
            Issue.record("the flood has forced a second signature")
            return
        }
        // The newest lines, over the ends of files.
        let newest = try late.entries(newest: 40)
        #expect(newest.entries.count == 40 && newest.damaged == 0)
        #expect(try late.entries(newest: 12).entries == Array(newest.entries.suffix(12)))
        // A day later they go.
        try flood(after: 90_000)
        try expectBounded()
        for text in ["signed", "interrupted", "slow"] {
            #expect(try journal(90_000).lastSigned(digest(text)) == nil, "\(text)")
        }
        #expect(fixture.bytes()?.isEmpty == false)
    }

    private func journal(_ seconds: Double) -> RequestJournal {
        fixture.journal(at: Fixture.now + seconds, limits: Self.small)
    }

    @Test(
        "Other files in the directory are no part of the journal, and older ones that others could have written are not read"
    )
    func olderFiles() throws {
        let journal = fixture.journal(limits: Self.small)
        repeat {
            try journal.begin(Fixture.entry()).finish(outcome: .signed)
        } while try fixture.journalFiles().count < 2
        let count = try journal.entries(newest: 1000).entries.count
        for name in [
            "journal.01.jsonl", "journal.x.jsonl", "journal.-1.jsonl", "journal.1.jsonl.bak", "journal..jsonl",
        ] {
            try fixture.directory.write(try #require(fixture.bytes()), to: "requests/" + name)
        }
        #expect(try journal.entries(newest: 1000).entries.count == count)
        #expect(chmod(fixture.path + "/journal.1.jsonl", 0o620) == 0)
        let error = try failure { _ = try journal.wasSigned("", client: 1, within: RequestJournal.memory) }
        #expect(error.code == .storeReadFailed && error.message.contains("journal.1.jsonl"), "\(error)")
    }

    @Test("Of many processes with one request one signs, and the hourly limit holds over all", arguments: [1000, 5])
    func oneSignature(perHour: Int) throws {
        let processes = try (0..<4).map { _ in try fixture.start("race", "a", "\(perHour)", "10") }
        var lines: [String] = []
        for process in processes { while let line = process.readLine() { lines.append(line) } }
        let begun = lines.filter { $0.hasPrefix("begun ") }
        #expect(begun.count == min(10, perHour) && Set(begun).count == begun.count, "\(lines)")
        #expect(
            lines.count == 40 && lines.allSatisfy { $0.hasPrefix("begun ") || ["repeated", "tooMany"].contains($0) })
        #expect(try fixture.journal().entries(newest: 1000).entries.count == begun.count)
    }

    // MARK: - Several processes, kills and disks

    /// The lines of a process whose digests are `began` and `signed`.
    private func steps(_ lines: [String]) -> (began: Set<String>, signed: Set<String>) {
        func digests(_ word: String) -> Set<String> {
            Set(lines.filter { $0.hasPrefix(word) }.map { String($0.dropFirst(word.count)) })
        }
        return (digests("began "), digests("signed "))
    }

    private func expectKnown(_ lines: [String], _ place: String) throws {
        let (entries, _) = try fixture.journal().entries(newest: 10_000)
        let (began, signed) = steps(lines)
        #expect(signed.isSubset(of: Set(entries.filter { $0.outcome == .signed }.map(\.digest))), "\(place)")
        #expect(began.isSubset(of: Set(entries.map(\.digest))), "\(place)")
        #expect(entries.allSatisfy { [.signed, .interrupted].contains($0.outcome) }, "\(place)")
    }

    @Test("Several processes write whole lines") func severalProcesses() throws {
        let processes = try ["a", "b", "c", "d"].map { try fixture.start("journal", $0, "30") }
        var lines: [String] = []
        for process in processes { while let line = process.readLine() { lines.append(line) } }
        let (entries, damaged) = try fixture.journal().entries(newest: 1000)
        #expect(entries.count == 120 && damaged == 0 && lines.count == 240)
        try expectKnown(lines, "four at once")
        #expect(entries.allSatisfy { $0.outcome == .signed })
    }

    @Test(
        "A process that is killed at any moment leaves no signature that the journal does not know",
        .enabled(if: TestLength.hasSeconds))
    func killedAtRandomMoments() throws {
        for round in 0..<TestLength.rounds(12, full: 30, soak: 300) {
            let process = try fixture.start("journal", "k\(round)", "100000")
            var lines: [String] = []
            for _ in 0..<Int.random(in: 1...6) { process.readLine().map { lines.append($0) } }
            usleep(.random(in: 0...3000))
            process.kill()
            while let line = process.readLine() { lines.append(line) }
            try expectKnown(lines, "round \(round)")
        }
        #expect(try fixture.journal().entries(newest: 10_000).damaged == 0)
    }

    @Test("A kill before each call that changes the disk leaves whole lines", .enabled(if: TestLength.hasSeconds))
    func killedBeforeEachCall() throws {
        let calls = ["write", "fsync", "flock", "mkdirat", "ftruncate", "openat"]
        guard (try? Subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"])) != nil else {
            return print("RequestJournalTests: processes cannot be traced here, so a kill at each call is NOT TESTED.")
        }
        var kills = 0
        for call in calls {
            for step in 1...60 {
                let strace = [
                    "strace", "-f", "-qq", "-o", "/dev/null", "-P", fixture.path, "-P", fixture.path + "/journal.jsonl",
                    "-P",
                    fixture.path + "/.lock", "-e", "trace=\(call)", "-e", "inject=\(call):signal=KILL:when=\(step)",
                ]
                let process = try fixture.start("journal", "s\(call)\(step)", "2", through: strace)
                var lines: [String] = []
                while let line = process.readLine() { lines.append(line) }
                try expectKnown(lines, "before \(call) number \(step)")
                if steps(lines).signed.count == 2 { break }
                kills += 1
            }
        }
        #expect(kills >= 6, "\(kills)")
        #expect(try fixture.journal().entries(newest: 10_000).damaged == 0)
    }

    @Test(
        "A limit of the size of files, a full disk and a read-only one are said before a signature",
        .enabled(if: TestLength.hasSeconds))
    func disks() throws {
        let process = try fixture.start("journal", "a", "100", through: ["sh", "-c", "ulimit -f 2; exec \"$@\"", "sh"])
        var lines: [String] = []
        while let line = process.readLine() { lines.append(line) }
        #expect(
            lines.last?.contains("File too large") == true && lines.last?.contains("[storeWriteFailed]") == true,
            "\(lines)")
        #expect(lines.count.isMultiple(of: 2) == false && lines.count > 2)
        #expect(try fixture.journal().entries(newest: 1000).damaged == 0)

        let namespaces = [["unshare", "-m"], ["unshare", "-rm"]].filter {
            (try? Subprocess.run($0 + ["/bin/sh", "-c", "mount -t tmpfs -o size=64k certprov /mnt"])) != nil
        }
        guard let namespace = namespaces.first else {
            return print("RequestJournalTests: no mount namespace can be made here, so full disks are NOT TESTED.")
        }
        let script = #"""
            mount -t tmpfs -o size=64k,mode=700 certprov "$2" || exit
            "$1" "$2" journal a 100000 | tail -1
            tail -c 1 "$2/journal.jsonl" | od -An -tx1
            mkdir -p "$2"/pending; "$1" "$2" wait 1 1
            rm "$2/journal.jsonl"; mkfifo "$3"; exec 3<>"$3"; HOLD=1 "$1" "$2" journal b 1 <&3 >"$3.out" &
            until grep -q began "$3.out"; do sleep 0.01; done; cat /dev/zero >"$2/pending/fill" 2>/dev/null
            exec 3<>"$3"; echo >&3; wait; tail -1 "$3.out"; grep -c '"outcome":"signed"' "$2/journal.jsonl"; rm "$2/pending/fill"
            mount -o remount,ro "$2" || exit
            "$1" "$2" journal c 1; "$1" "$2" wait 1 1; "$1" "$2" lock 1
            """#
        let output = try Subprocess(
            namespace + ["/bin/sh", "-c", script, "sh", Fixture.program, fixture.path, fixture.directory["go"]],
            .captured(), seconds: 600
        ).wait().stdout.split(separator: "\n").map(String.init)
        try #require(output.count == 8, "\(output)")
        #expect(output[0].contains("No space left") && output[0].contains("so nothing is signed"), "\(output)")
        #expect(output[1].trimmingCharacters(in: .whitespaces) == "0a")
        #expect(output[2].contains("No space left") && output[2].contains("[storeWriteFailed]"), "\(output)")
        // The disk was full when the key had signed.
        #expect(output[3].hasPrefix("signed ") && output[4] == "1", "\(output)")
        for line in output[5...] {
            #expect(line.contains("Read-only file system") && line.contains("[storeWriteFailed]"), "\(output)")
        }
    }
}
