import CertificateProviding
import Contracts
import Foundation
import QueueWriter
import Testing

/// The queue with several processes, of which some are killed.
@Suite struct ContractQueueProcessTests {
    @Test("a kill at any step of the storage leaves every contract whole")
    func killedAtSteps() async throws {
        var steps = 0
        while steps < 200 {
            steps += 1
            let host = try await QueueHost()
            let (process, output) = try host.start("killed", steps)
            _ = try output.readToEnd()
            process.waitUntilExit()
            if process.terminationReason == .exit {
                #expect(process.terminationStatus == 0)
                break
            }
            try host.requireWhole("step \(steps)")
            // Others go on.
            try QueueWriter.use(host.queue, host.file)
            try host.requireWhole("after step \(steps)")
        }
        #expect(steps > 30 && steps < 200)
    }

    @Test("what a process said is stored is there after its kill", arguments: 1...6)
    func killedWhileAdding(round: Int) async throws {
        let host = try await QueueHost()
        let (process, output) = try host.start("adding")
        var text = Data()
        // The kill comes at another place in each round.
        while text.count(where: { $0 == 0x0a }) < round * 3 {
            let more = output.availableData
            guard !more.isEmpty else { break }
            text += more
        }
        kill(process.processIdentifier, SIGKILL)
        text += try output.readToEnd() ?? Data()
        process.waitUntilExit()
        let said = String(decoding: text, as: UTF8.self).split(separator: "\n").map(String.init)
        let stored = Set(try host.queue.list().map(\.id))
        #expect(said.count >= round * 3 && stored.isSuperset(of: said) && stored.count - said.count <= 1)
        try host.requireWhole("round \(round)")
    }

    @Test("changes of several processes and threads follow one another, and no document goes that is named")
    func together() async throws {
        let host = try await QueueHost()
        let contract = try host.queue.add(host.file)
        try host.queue.change(contract.id) { $0.revision = 0 }
        let processes = try (0..<3).map { _ in try host.start("counting", 10) }
        try await withThrowingTaskGroup(of: Void.self) { group in
            for _ in 0..<2 {
                group.addTask { [queue = host.queue, file = host.file] in
                    for _ in 0..<10 {
                        try queue.change(contract.id) { $0.revision = ($0.revision ?? 0) + 1 }
                        let own = try queue.add(file)
                        _ = try queue.list()
                        try queue.remove(own.id)
                        try queue.removeUnreferenced()
                    }
                }
            }
            try await group.waitForAll()
        }
        for (process, output) in processes {
            _ = try output.readToEnd()
            process.waitUntilExit()
            #expect(process.terminationStatus == 0)
        }
        #expect(try host.queue.contract(contract.id)?.revision == 50)
        #expect(try host.queue.list().count == 1)
        try host.requireWhole("at the end")
    }

    @Test("a full disk changes nothing, and there is room after a removal")
    func fullDisk() async throws {
        let host = try await QueueHost()
        // $0 is the program, $1 the operation, $2 the directory; the disk is seen by this command only.
        let script = """
            mkdir "$2/disk" && mount -t tmpfs -o size=2m,mode=700 tmpfs "$2/disk" || exit 77
            cp "$2/file.sellsign" "$2/disk" && exec "$0" "$1" "$2/disk" 0
            """
        let (process, output) = try host.start("filling", prefix: ["unshare", "-m", "sh", "-c", script])
        let text = String(decoding: try output.readToEnd() ?? Data(), as: UTF8.self)
        process.waitUntilExit()
        if process.terminationStatus == 77 || geteuid() != 0 {
            print("ContractQueueProcessTests.fullDisk is left out: no disk can be mounted here.")
            return
        }
        #expect(process.terminationStatus == 0 && text.hasPrefix("full after "), "\(text)")
    }
}
