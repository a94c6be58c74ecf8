import CertificateProviding
import Enrolment
import Glibc
import IdentityStore
import Logging
import RemoteMDMProvider

/// Many hosts' enrolments in one process, as an agent for containers would do: how many a second, and whether memory,
/// threads and descriptors stay.
struct EnrolBenchmark {
    let url: String
    let anchors: String
    let count: Int
    let concurrency: Int
    private let environment: ProviderEnvironment

    init(url: String, anchors: String, state: String, count: Int, concurrency: Int) throws {
        self.url = url
        self.anchors = anchors
        self.count = count
        self.concurrency = concurrency
        let (store, executor) = (IdentityStore(path: state), BlockingExecutor.threads())
        let make: @Sendable (ProviderID) throws(ProviderError) -> ProviderEnvironment = { id in
            ProviderEnvironment(storage: store.storage(for: id), logger: Logger(label: "bench"), executor: executor)
        }
        var environment = try make(ProviderDescriptor.mdm.id)
        environment.keyStores = try ProviderRegistry(keyStores: [.store]).keyStores(in: make)
        self.environment = environment
    }

    func run() async throws {
        let start = ContinuousClock.now
        var (done, peak, threads, descriptors) = (0, 0.0, 0.0, 0)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for number in 0..<count {
                if number >= concurrency {
                    try await tasks.next()
                    done += 1
                    threads = max(threads, Self.status("Threads"))
                    descriptors = max(descriptors, Self.openDescriptors())
                    if done == 100 { peak = Self.status("VmHWM") }
                }
                tasks.addTask { try await enrol(number) }
            }
            try await tasks.waitForAll()
        }
        print("enrolments-per-second", Double(count) / seconds(.now - start))
        print("peak-100-kib", peak)
        print("peak-all-kib", Self.status("VmHWM"))
        print("threads", threads)
        print("descriptors", descriptors)
    }

    private func enrol(_ number: Int) async throws {
        let provider = try ProviderDescriptor.mdm.makeProvider(
            environment,
            ProviderParameters([
                "protocol": .init("est"), "url": .init(url), "trust-anchors": .init(anchors),
                "subject": .init("CN=host-\(number),O=Example"),
            ]))
        _ = try await provider.getCertificate(NoUserInteraction())
    }

    /// A number of `/proc/self/status`.
    private static func status(_ name: String) -> Double {
        guard let file = fopen("/proc/self/status", "r") else { return 0 }
        defer { fclose(file) }
        var line = [CChar](repeating: 0, count: 256)
        while fgets(&line, Int32(line.count), file) != nil {
            let text = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
            if text.hasPrefix(name + ":") {
                return text.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Double($0) } ?? 0
            }
        }
        return 0
    }

    private static func openDescriptors() -> Int {
        guard let directory = opendir("/proc/self/fd") else { return 0 }
        defer { closedir(directory) }
        // Not this one, nor "." and "..".
        var count = -3
        while readdir(directory) != nil { count += 1 }
        return count
    }
}
