import Foundation
import Glibc
import TestSupport
import Testing

/// A process that is killed at any moment leaves the old identity or the new one, whole.
@Suite struct CrashTests {
    private let sandbox: Sandbox
    private let out: String

    init() throws {
        sandbox = try Sandbox()
        out = sandbox.path + "/out"
    }

    @Test func killedAtRandomMomentsItLeavesAWholeIdentity() throws {
        let source = sandbox.path + "/client.p12"
        let arguments = ["fetch", "--force", "--json", "--export-key", "--out", out] + adHoc(source)
        let files = try ["a", "b"].map { try contents(Fixtures.path("\($0).p12")) }
        let sets = try ["a", "b"].map { try PEMSet(fixture: $0) }

        var longest = Duration.zero
        for round in 0..<4 {
            try replace(source, files[round % 2])
            let start = ContinuousClock.now
            #expect(try sandbox.certprov(arguments).status == 0)
            longest = max(longest, start.duration(to: .now))
        }
        try FileManager.default.removeItem(atPath: out)
        try FileManager.default.removeItem(atPath: sandbox.store)

        var kills = KillMoments(TestLength.rounds(25, full: 60, soak: 1000), within: longest)
        var (round, wasThere) = (0, false)
        var most = (store: 0, out: 0)
        while kills.areLeft {
            try replace(source, files[round % 2])
            let output = kills.kill(try sandbox.start([BuiltCommand.path] + arguments))
            #expect(output.signal == SIGKILL || output.status == 0, "\(output)")

            let isThere = try expectWhole("round \(round)", source, sets) != nil
            #expect(isThere || !wasThere, "round \(round): there is no set any more")
            wasThere = wasThere || isThere
            most.store = max(most.store, try entries(sandbox.store))
            most.out = max(most.out, try entries(out))
            round += 1
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        // .lock, store.key, identities, pkcs12, the entry, and what one crash may leave.
        #expect(most.store <= 5 + 2, "\(most)")
        // .lock, current, two sets of four files each, what a crash left of a third, and its link.
        #expect(most.out <= 2 + 3 * 5 + 1, "\(most)")

        // The next one that ends clears up.
        try replace(source, files[0])
        #expect(try sandbox.certprov(arguments).status == 0)
        try replace(source, files[1])
        #expect(try sandbox.certprov(arguments).status == 0)
        #expect(try entries(sandbox.store) == 5)
        #expect(try entries(out) == 2 + 2 * 5)
        #expect(try PEMSet(directory: out + "/current") == sets[1])
    }

    /// Kills the process before each call that changes the disk, one after the other, until it gets to its end.
    ///
    /// A random moment hardly ever falls between two calls; here every such gap is met. Files are opened all the time, so of
    /// those calls only the ones in the directories of the store and of the output are met: a new file's temporary name is not
    /// known beforehand.
    @Test func killedBeforeAnyChangeOfTheDiskItLeavesAWholeIdentity() throws {
        let calls = [
            "mkdirat", "symlinkat", "linkat", "unlinkat", "?renameat", "?renameat2", "fsync", "fchmod", "write",
            "flock", "openat",
        ]
        let directories = [sandbox.store, sandbox.store + "/identities/pkcs12", out].flatMap { ["-P", $0] }
        let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=\(calls.joined(separator: ","))"]
        guard (try? sandbox.run(strace + ["true"]))?.status == 0 else {
            return print("CrashTests: processes cannot be traced here, so a kill at every step is NOT TESTED.")
        }
        let source = sandbox.path + "/client.p12"
        let arguments = ["fetch", "--force", "--json", "--export-key", "--out", out] + adHoc(source)
        let files = try ["a", "b"].map { try contents(Fixtures.path("\($0).p12")) }
        let sets = try ["a", "b"].map { try PEMSet(fixture: $0) }
        try replace(source, files[0])
        #expect(try sandbox.certprov(arguments).status == 0)

        var kills: [String: Int] = [:]
        for call in calls {
            for step in 1...50 {
                let place = "before \(call) number \(step)"
                let before = try #require(try expectWhole(place, source, sets))
                try replace(source, files[1 - before])
                let inject =
                    ["-e", "inject=\(call):signal=KILL:when=\(step)"] + (call == "openat" ? directories : [])
                let output = try sandbox.run(strace + inject + [BuiltCommand.path] + arguments)
                if output.status == 0 { break }
                kills[call, default: 0] += 1
                #expect(step < 50 && output.signal == SIGKILL, "\(place): \(output)")
                #expect(try expectWhole(place, source, sets) != nil, "\(place): there is no set any more")
                // A file that was not yet put in place, and the one that it was about to replace.
                #expect(try entries(sandbox.store) <= 5 + 2, "\(place)")
                #expect(try entries(out) <= 2 + 3 * 5 + 1, "\(place)")
            }
        }
        // Four files and an entry, each written, given its mode and flushed, are 15.
        #expect(kills.values.reduce(0, +) >= 20, "\(kills)")
        // Not where strace may not look at the descriptors of a process that is not dumpable.
        #expect(geteuid() != 0 || kills["openat", default: 0] >= 3, "\(kills)")
        #expect(kills["linkat", default: 0] >= 1, "\(kills)")
        #expect(try entries(sandbox.store) == 5)
        #expect(try entries(out) == 2 + 2 * 5)
    }

    /// Expects that the store answers and that `current`, if there is one, is one of `sets`.
    /// - Returns: Which one.
    private func expectWhole(_ place: String, _ source: String, _ sets: [PEMSet]) throws -> Int? {
        let answer = try sandbox.certprov(["fetch", "--json"] + adHoc(source)).expect(about: place)
        let subject = try answer.document("Identity")["identity"]["subject"].string
        #expect(["CN=identity-a", "CN=identity-b"].contains(subject), "\(place)")
        guard status(out + "/current") != nil else { return nil }
        let index = sets.firstIndex(of: try PEMSet(directory: out + "/current"))
        #expect(index != nil, "\(place): a mixed or partial set")
        return index
    }

    /// Puts `bytes` in place in one step: the file itself is not under test here.
    private func replace(_ path: String, _ bytes: [UInt8]) throws {
        try Data(bytes).write(to: URL(filePath: path), options: .atomic)
    }

    private func entries(_ path: String) throws -> Int {
        guard status(path) != nil else { return 0 }
        return try FileManager.default.subpathsOfDirectory(atPath: path).count
    }
}

/// The four files of `fetch --out --export-key`.
struct PEMSet: Equatable {
    var certificate, chain, key, identity: [UInt8]

    init(directory: String) throws {
        certificate = try contents(directory + "/certificate.pem")
        chain = try contents(directory + "/chain.pem")
        key = try contents(directory + "/key.pem")
        identity = try contents(directory + "/identity.pem")
    }

    /// The content to write for a fixture: `openssl` writes the same PEM.
    init(fixture: String) throws {
        certificate = try contents(Fixtures.path("\(fixture).pem"))
        chain = certificate + (try contents(Fixtures.path("intermediate.pem")))
        key = try contents(Fixtures.path("\(fixture).key"))
        identity = key + chain
    }
}
