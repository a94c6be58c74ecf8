import CertificateProviding
import Foundation
import Glibc
import Renewal
import Synchronization
import TestSupport
import Testing

@testable import PluginHost

/// Plugins that misbehave: each call ends within its deadline with a typed error that names the plugin, nothing is left
/// behind, and the next process of the plugin is used as if nothing had happened.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ZooTests {
    @Test func aGoodPluginIsAProvider() async throws {
        let zoo = try Zoo()
        let provider = try zoo.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(identity.certificate == zoo.identity.certificate && identity.key.location == .plugin)
        #expect(identity.provenance == .init(provider: Zoo.id, source: "the zoo"))
        try await identity.verifyPossession()
        #expect(try provider.getStoredCertificate()?.certificate == zoo.identity.certificate)
        let list = await provider.listing?.listIdentities()
        #expect(list?.identities.count == 1 && list?.remarks == ["a remark"])
        #expect(try await provider.deletions?.announcedDeletions() == ["Nothing is lost."] && provider.keyStore == nil)
        try provider.deleteStoredCertificate()
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
        #expect(failure { _ = try provider.getStoredCertificate() }?.code == .operationNotAllowed)
    }

    @Test("A plugin says which side of TLS its identity is for")
    func thePluginNamesTheUsage() async throws {
        for (behaviour, usage) in [("none", IdentityUsage.client), ("for servers", .server)] {
            let zoo = try Zoo(behaviour)
            let provider = try zoo.provider()
            #expect(try await provider.getCertificate(NoUserInteraction()).usage == usage)
            #expect(await provider.listing?.listIdentities().identities.map(\.usage) == [usage])
            await provider.shutdown()
            #expect(zoo.processes.isEmpty)
        }
    }

    @Test func aPluginUsesWhatTheHostOffers() async throws {
        let zoo = try Zoo("uses everything")
        let storage = InMemoryStorage()
        let person = Person("s3cret")
        let provider = try zoo.provider(
            ["password-source": "file:\(zoo.directory["password"])"], in: .testing(storage: storage))
        _ = try await provider.getCertificate(person)
        // A person must not take them for questions of the host.
        let questions = ["The secret", "Really?", "Your name", "Which?"].map { "The plugin 'zoo' asks: \($0)" }
        #expect(person.questions == questions && person.reports == ["The plugin 'zoo': working"])
        let configuration = ConfigurationStorage(storage, distinguishedBy: ["directory": zoo.directory.path])
        #expect(try configuration.record(named: "state") == SecretBytes(utf8: "one"))
        #expect(try configuration.shared.record(named: "state") == SecretBytes(utf8: "two"))
        await provider.shutdown()
    }

    @Test func messagesThatItDoesNotKnowChangeNothing() async throws {
        let zoo = try Zoo()
        let provider = try zoo.provider(of: zoo.host.sendingUnknownMessages(true))
        try await provider.getCertificate(NoUserInteraction()).verifyPossession()
        await provider.shutdown()
        // One that does not answer them says so.
        let deaf = try Zoo("ignores what it does not know")
        let silent = try deaf.provider(["timeout": "20"], of: deaf.host.sendingUnknownMessages(true))
        let error = await failure { _ = try await silent.getCertificate(NoUserInteraction()) }
        #expect(
            error?.code == .protocolError && error?.message.contains("plugin verify") == true,
            "\(String(describing: error))")
        await silent.shutdown()
        #expect(zoo.processes.isEmpty && deaf.processes.isEmpty)
    }

    /// The process runs as long as someone follows what it announces. After a crash it is started again, and announces nothing.
    @Test func announcementsAreFollowed() async throws {
        let zoo = try Zoo("announces updates")
        let provider = try zoo.provider()
        let announcements = try #require(provider.updates).announcements()
        let (seen, count) = AsyncStream<Void>.makeStream()
        let following = Task {
            var total = 0
            for await _ in announcements {
                total += 1
                count.yield()
            }
            return total
        }
        var each = seen.makeAsyncIterator()
        func restart() async throws {
            let killed = Set(zoo.plugins)
            for process in zoo.processes { kill(process, SIGKILL) }
            for _ in 0..<3000 where killed.isSuperset(of: zoo.plugins) {
                try await Task.sleep(for: .milliseconds(10))
            }
            #expect(!killed.isSuperset(of: zoo.plugins), "it was started again")
        }
        _ = try provider.getStoredCertificate()
        #expect(await each.next() != nil)
        try await restart()
        _ = try provider.getStoredCertificate()
        #expect(await each.next() != nil)
        await provider.shutdown()
        #expect(await following.value == 2)
        #expect(zoo.processes.isEmpty)
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let behaviour: String
        let codes: [ProviderError.Code]
        /// In the error's message.
        var text = ""
        var testDescription: String { behaviour }
    }

    static let cases: [Case] =
        [
            Case(behaviour: "garbage", codes: [.protocolError]),
            Case(behaviour: "half a message", codes: [.unavailable], text: "bytes without a newline at their end"),
            Case(behaviour: "a lot on standard output", codes: [.protocolError], text: "longer than"),
            Case(behaviour: "a lot of notices", codes: [.protocolError], text: "without an answer"),
            Case(behaviour: "a lot on standard error", codes: [.unavailable], text: "status 5"),
            Case(behaviour: "a child that keeps standard output open", codes: [.unavailable], text: "status 0"),
            Case(behaviour: "ignores cancel and SIGTERM", codes: [.timedOut], text: "'obtain'"),
            Case(behaviour: "closes standard output", codes: [.unavailable], text: "standard output"),
            Case(behaviour: "another plugin's id", codes: [.protocolError], text: "'other'"),
            Case(behaviour: "two parameters of one name", codes: [.protocolError], text: "of one name"),
            Case(behaviour: "a parameter that the host adds", codes: [.protocolError], text: "NAME-pin-source"),
            Case(behaviour: "a default that chooses a library", codes: [.protocolError], text: "after '?'"),
            Case(behaviour: "a scheme that is not its own", codes: [.protocolError], text: "'aquarium'"),
            Case(behaviour: "an unknown version", codes: [.protocolError], text: "version 99"),
            Case(behaviour: "an unknown code", codes: [.providerError], text: "'fullMoon': the moon is full"),
            Case(behaviour: "another request's id", codes: [.protocolError], text: "the id of no request"),
            Case(behaviour: "an answer twice", codes: [.protocolError], text: "the id of no request"),
            Case(behaviour: "a key that does not fit the leaf", codes: [.keyMismatch]),
            Case(behaviour: "a signature that does not verify", codes: [.keyMismatch]),
            Case(behaviour: "an empty chain", codes: [.malformedData], text: "no certificate"),
            Case(behaviour: "a chain out of order", codes: [.malformedData], text: "not in order"),
            Case(behaviour: "for an unknown side", codes: [.protocolError], text: "'referee'"),
            Case(behaviour: "prompts for ever", codes: [.protocolError], text: "questions"),
            Case(behaviour: "asks for another's secret", codes: [.operationNotAllowed]),
        ]
        + ["hello", "configure", "obtain", "key.sign"].flatMap { phase in
            [
                Case(behaviour: "hangs at \(phase)", codes: [.timedOut], text: "'\(phase)'"),
                Case(behaviour: "crashes at \(phase)", codes: [.unavailable], text: "signal 11"),
            ]
                + [0, 1, 77].map {
                    Case(behaviour: "exits at \(phase) with \($0)", codes: [.unavailable], text: "status \($0)")
                }
        }

    @Test(arguments: cases) func theErrorIsTypedAndNothingIsLeftBehind(_ one: Case) async throws {
        let zoo = try Zoo(one.behaviour)
        var error: ProviderError?
        // A busy machine needs more time for what comes before a request that hangs.
        for timeout in one.codes == [.timedOut] ? [2, 10, 60] : [300] {
            error = await failure {
                let provider = try zoo.provider(["timeout": String(timeout)])
                _ = try await provider.getCertificate(Person("s3cret"))
            }
            if error?.message.contains(one.text) == true || one.text.isEmpty { break }
        }
        #expect(one.codes.contains(try #require(error?.code)), "\(String(describing: error))")
        #expect(
            error?.message.contains("plugin 'zoo'") == true && error?.provider == Zoo.id, "\(String(describing: error))"
        )
        #expect(one.text.isEmpty || error?.message.contains(one.text) == true, "\(String(describing: error))")
        await zoo.host.shutdown()
        #expect(zoo.processes.isEmpty)
        // Mended, it is used.
        try Zoo.write("none", to: zoo.directory)
        let provider = try zoo.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == zoo.identity.certificate)
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    private static let calls: [(String, @Sendable (any CertificateProvider) async throws -> Void)] = [
        ("stored", { _ = try $0.getStoredCertificate() }), ("forget", { try $0.deleteStoredCertificate() }),
        (
            "list",
            { provider in
                if let failure = await provider.listing?.listIdentities().failures.first { throw failure }
            }
        ), ("announceDeletions", { _ = try await $0.deletions?.announcedDeletions() }),
        (
            "discardReplaced",
            { provider in
                guard let identity = try provider.getStoredCertificate() else { return }
                try await provider.replacement?.discardReplaced(by: identity, NoUserInteraction())
            }
        ), ("revoke", { try await $0.revocation?.revokeStoredCertificate(.unspecified, NoUserInteraction()) }),
    ]

    /// The other requests of the host, one call each.
    @Test(arguments: calls.indices) func eachRequestMayHangOrCrash(_ index: Int) async throws {
        let (request, call) = Self.calls[index]
        for (behaviour, code) in [
            ("hangs at \(request)", ProviderError.Code.timedOut), ("crashes at \(request)", .unavailable),
            ("exits at \(request) with 0", .unavailable),
        ] {
            let zoo = try Zoo(behaviour)
            let provider = try zoo.provider(["timeout": behaviour.hasPrefix("hangs") ? "2" : "300"])
            let failure = await failure { try await call(provider) }
            #expect(failure?.code == code, "\(behaviour): \(String(describing: failure))")
            #expect(failure?.message.contains("plugin 'zoo'") == true && failure?.provider == Zoo.id)
            await provider.shutdown()
            await zoo.host.shutdown()
            #expect(zoo.processes.isEmpty)
        }
    }

    /// It must not keep a service from renewing by the certificate's lifetime.
    @Test(arguments: ["hangs at advice", "crashes at advice", "a window that ends before it begins"])
    func anAdviceThatCannotBeHadChangesNothing(behaviour: String) async throws {
        let zoo = try Zoo(behaviour)
        let provider = try zoo.provider(["timeout": "2"])
        let (identity, advice) = (try #require(try provider.getStoredCertificate()), try #require(provider.advice))
        #expect(await advice.refreshAdvice(on: identity) && advice.advice(on: identity) == nil)
        #expect(await !advice.refreshAdvice(on: identity), "a failure is not repeated at once")
        await provider.shutdown()
    }

    @Test("A plugin that changes the trust bundle only is one update for a running service")
    func aChangedTrustBundleIsAnUpdate() async throws {
        let zoo = try Zoo("announces updates")
        let provider = try zoo.provider()
        let first = try await provider.getCertificate(NoUserInteraction())
        #expect(first.trust == nil)
        let root = try Zoo.authority.get().root
        try zoo.directory.write(root.derRepresentation, to: "trust-root.der")
        let service = RenewingIdentity(
            first, of: provider, executor: .threads(),
            environment: RenewalEnvironment(logger: ProviderEnvironment.testing().logger))
        let run = Task { await service.run() }
        // The plugin announces an update at each look: one may come before the service follows it.
        let looks = Task {
            while service.current.trust == nil {
                _ = try provider.getStoredCertificate()
                try await Task.sleep(for: .milliseconds(20))
            }
        }
        for await identity in service.updates where identity.trust != nil {
            #expect(identity.trust == TrustBundle([root]) && identity.certificate == first.certificate)
            #expect(service.current.trust == identity.trust)
            break
        }
        try await looks.value
        run.cancel()
        await run.value
        await zoo.host.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    @Test func aStoredIdentityOfAPluginSignsBeforeItIsUsed() async throws {
        let zoo = try Zoo("a signature that does not verify")
        let provider = try zoo.provider()
        #expect(failure { _ = try provider.getStoredCertificate() }?.code == .keyMismatch)
        await provider.shutdown()
    }

    /// A certificate that is renewed between two calls belongs to its key each time.
    @Test func anotherCertificateAtEachCallIsAnIdentityEachTime() async throws {
        let zoo = try Zoo("another certificate at each call")
        let provider = try zoo.provider()
        for _ in 0..<4 { try await provider.getCertificate(NoUserInteraction()).verifyPossession() }
        await provider.shutdown()
    }

    @Test func aCrashIsFollowedByANewProcess() async throws {
        var directories: [String] = []
        let zoo = try Zoo()
        let provider = try zoo.provider()
        let key = try await provider.getCertificate(NoUserInteraction()).key
        for round in 0..<3 {
            directories += zoo.workingDirectories
            for process in zoo.processes { kill(process, SIGKILL) }
            // One call may meet the end of the old process.
            var signature: [UInt8]?
            while signature == nil {
                signature = try? await key.signature(for: [1, 2, 3], using: .ecdsaP256SHA256)
            }
            #expect(
                key.publicKey.isValidSignature(signature ?? [], for: [1, 2, 3], using: .ecdsaP256SHA256),
                "round \(round)")
        }
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
        // The launchers were killed too, which remove them otherwise.
        #expect(directories.count == 3 && !directories.contains { FileManager.default.fileExists(atPath: $0) })
    }

    @Test("A key is found by a new process when its provider is not kept")
    func aKeyNeedsNoProvider() async throws {
        let zoo = try Zoo()
        func key() async throws -> any IdentityKey {
            try await zoo.provider().getCertificate(NoUserInteraction()).key
        }
        let key = try await key()
        for process in zoo.processes { kill(process, SIGKILL) }
        // One call may meet the end of the old process.
        var error: ProviderError?
        repeat {
            error = await failure {
                let signature = try await key.signature(for: [1, 2, 3], using: .ecdsaP256SHA256)
                #expect(key.publicKey.isValidSignature(signature, for: [1, 2, 3], using: .ecdsaP256SHA256))
            }
        } while error?.code == .unavailable
        #expect(error == nil, "\(String(describing: error))")
        await zoo.host.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    @Test(
        "A plugin that is alive and never done is not waited for for ever",
        arguments: [
            ("progress for ever", "did not answer the request 'obtain' within"),
            ("a key that signs in thirty years", "did not sign within"),
        ])
    func theWholeTimeIsBounded(behaviour: String, text: String) async throws {
        let zoo = try Zoo(behaviour)
        var error: ProviderError?
        // A busy machine needs more time for what comes before.
        for timeout in [2, 10, 60] {
            error = await failure {
                let provider = try zoo.provider(["timeout": String(timeout)])
                _ = try await provider.getCertificate(NoUserInteraction())
            }
            if error?.message.contains("\(text) \(timeout + 10) seconds") == true { break }
        }
        #expect(error?.code == .timedOut, "\(String(describing: error))")
        #expect(error?.message.contains(text) == true, "\(String(describing: error))")
        await zoo.host.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    @Test("A plugin that keeps its launcher stopped is ended with it and with what it has started")
    func aStoppedLauncherIsEnded() async throws {
        let zoo = try Zoo("stops its launcher")
        let provider = try zoo.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(zoo.processes.count == 3)
        let directories = zoo.workingDirectories
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
        #expect(directories.count == 1 && !directories.contains { FileManager.default.fileExists(atPath: $0) })
    }

    /// A plugin can stop its launcher before its start is over, and would stay.
    @Test("The end of this process knows a plugin that is just being started, and lets none start later")
    func aStartIsKnownToTheEnd() throws {
        let zoo = try Zoo()
        let plugin = try #require(PluginDirectories([zoo.directory.path]).scan(builtIn: []).first)
        let (program, launcher) = (try PluginProgram(plugin, expected: nil), try PluginLauncher.find())
        let services = HostServices(
            plugin.id, ProviderEnvironment.testing(), sources: [],
            stores: UsableKeyStores([:], in: .none, texts: [], sources: [])
        ) {}
        let processes = PluginProcesses()
        func start() throws(ProviderError) -> PluginProcess {
            try PluginProcess(
                program, launcher: launcher, environment: [:], services, observer: nil, onLoss: { _, _ in },
                onEnd: { processes.remove($0) })
        }
        let isAsking = Atomic(false)
        let isKnown = Atomic(false)
        let isAnswered = DispatchSemaphore(value: 0)
        let process = try processes.add { () throws(ProviderError) in
            Thread.detachNewThread {
                isAsking.store(true, ordering: .releasing)
                isKnown.store(processes.close(), ordering: .releasing)
                isAnswered.signal()
            }
            while !isAsking.load(ordering: .acquiring) { usleep(100) }
            return try start()
        }
        isAnswered.wait()
        let wasKnown = isKnown.load(ordering: .acquiring)
        #expect(wasKnown)
        #expect(failure { _ = try processes.add(start) }?.code == .operationNotAllowed)
        _ = try process.connect()
        process.end(ProviderError(.operationNotAllowed, "The test is over."))
        processes.wait()
        #expect(zoo.processes.isEmpty)
    }

    @Test("A launcher that others may change is not used")
    func theLauncherIsCheckedLikeAPlugin() async throws {
        let zoo = try Zoo()
        let launcher = try zoo.directory.write(Array("#!/bin/sh\n".utf8), to: "launcher", mode: 0o777)
        chmod(launcher, 0o777)
        let host = PluginHost(
            PluginDirectories([zoo.directory.path]), launcher: launcher,
            logger: ProviderEnvironment.testing().logger)
        let error = failure { _ = try host.describe(Zoo.id) }
        #expect(error?.code == .configurationInvalid, "\(String(describing: error))")
        #expect(
            error?.message.contains("other users may write to \(launcher)") == true, "\(String(describing: error))")
        await host.shutdown()
    }

    @Test func aPluginThatEndsAtOnceIsNotStartedForEver() async throws {
        let zoo = try Zoo()
        let provider = try zoo.provider()
        try Zoo.write("exits at hello with 3", to: zoo.directory)
        var messages: [String] = []
        for _ in 0..<7 { messages.append(failure { _ = try provider.getStoredCertificate() }?.message ?? "none") }
        #expect(messages[4].contains("status 3"), "\(messages)")
        #expect(messages[5].contains("5 times within a minute") && messages[5].contains("status 3"), "\(messages)")
        #expect(messages[6] == messages[5])
        await provider.shutdown()
    }

    @Test func aReplacedBinaryIsUsedFromTheNextStartOn() async throws {
        let zoo = try Zoo()
        let provider = try zoo.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        try Zoo.write("an unknown code", to: zoo.directory)
        // The process is the old one still.
        _ = try await provider.getCertificate(NoUserInteraction())
        await zoo.host.shutdown()
        #expect(await failure { _ = try await provider.getCertificate(NoUserInteraction()) }?.code == .providerError)
        await provider.shutdown()
    }

    @Test func aDigestInTheConfigurationRefusesAnotherFile() async throws {
        let zoo = try Zoo()
        let digest = try Subprocess.run(["sha256sum", zoo.directory["certprov-plugin-zoo"]])
        let settings = ["sha256": String(decoding: digest.prefix(64), as: UTF8.self)]
        let provider = try zoo.provider(settings)
        _ = try await provider.getCertificate(NoUserInteraction())
        // It leaves a file behind where it is run.
        let trace = zoo.directory["run"]
        try zoo.directory.install("certprov-plugin-zoo", "#!/bin/sh\ntouch \(trace)\n".utf8)
        await zoo.host.shutdown()
        let late = await failure { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(late?.code == .configurationInvalid && late?.message.contains("SHA-256") == true)
        #expect(failure { _ = try zoo.provider(settings) }?.code == .configurationInvalid)
        #expect(!FileManager.default.fileExists(atPath: trace))
        await provider.shutdown()
    }

    /// A busy host may take longer from the start of a plugin to its first request.
    @Test("A plugin that counts as idle at once still answers each use")
    func aPluginIsNotEndedBeforeItIsUsed() async throws {
        for _ in 0..<5 {
            let zoo = try Zoo()
            let host = zoo.host.endingPlugins(idleFor: .microseconds(100))
            let provider = try zoo.provider(of: host)
            // Five starts in a minute are permitted.
            _ = try await provider.getCertificate(NoUserInteraction())
            #expect(try provider.getStoredCertificate() != nil)
            _ = try await provider.getCertificate(NoUserInteraction())
            await provider.shutdown()
            await host.shutdown()
        }
    }

    @Test func aCancelledRequestEndsSoon() async throws {
        let zoo = try Zoo("hangs at obtain")
        let provider = try zoo.provider(["timeout": "300"])
        let task = Task { await failure { _ = try await provider.getCertificate(NoUserInteraction()) } }
        while zoo.processes.count < 2 { try await Task.sleep(for: .milliseconds(1)) }
        task.cancel()
        // At its deadline it would be `timedOut`.
        #expect(await task.value?.code == .userCancelled)
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    @Test("The call after a cancellation that the plugin ignores uses another process")
    func anIgnoredCancellationIsNotTheNextCallers() async throws {
        let zoo = try Zoo("hangs at obtain")
        let provider = try zoo.provider(["timeout": "300"])
        for _ in 0..<2 {
            let task = Task { await failure { _ = try await provider.getCertificate(NoUserInteraction()) } }
            while zoo.plugins.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
            task.cancel()
            #expect(await task.value?.code == .userCancelled)
            #expect(try provider.getStoredCertificate() != nil)
            await zoo.host.shutdown()
        }
        #expect(zoo.host.ignoredCancellation == "obtain")
        await provider.shutdown()
        #expect(zoo.processes.isEmpty)
    }

    /// Misbehaviours at random, several at a time, each in a host of its own or in a shared one, with kills and cancellations.
    /// Beside them a plugin that behaves is used all the time.
    @Test(.timeLimit(.minutes(60))) func manyAtRandomDisturbNoOther() async throws {
        let good = try Zoo()
        let provider = try good.provider()
        let isOver = Mutex(false)
        async let undisturbed: Int = {
            var times = 0
            while !isOver.withLock(\.self) || times == 0 {
                try await provider.getCertificate(NoUserInteraction()).verifyPossession()
                times += 1
            }
            return times
        }()
        let length = TestLength.rounds(40, soak: 1000)
        let messages = try await withThrowingTaskGroup(of: String?.self) { tasks in
            var messages: [String?] = []
            for round in 0..<length {
                if round >= 4 { messages.append(try await tasks.next() ?? nil) }
                tasks.addTask { try await Self.misbehaveAtRandom() }
            }
            for try await message in tasks { messages.append(message) }
            return messages
        }
        isOver.withLock { $0 = true }
        #expect(try await undisturbed > 0)
        await provider.shutdown()
        #expect(good.processes.isEmpty)
        #expect(messages.count == length)
        for case let message? in messages { #expect(message.contains("plugin 'zoo'"), "\(message)") }
    }

    /// - Returns: The message of the error, if there was one.
    private static func misbehaveAtRandom() async throws -> String? {
        let one = try #require(cases.randomElement())
        let zoo = try Zoo(one.behaviour)
        let failure = await failure {
            let provider = try zoo.provider(["timeout": "2"])
            let uses = Task {
                for _ in 0..<3 {
                    if Bool.random() {
                        try await provider.getCertificate(Person("s3cret")).verifyPossession()
                    } else {
                        _ = try provider.getStoredCertificate()
                    }
                }
            }
            switch Int.random(in: 0..<4) {
            case 0: uses.cancel()
            case 1: for process in zoo.plugins { kill(process, SIGKILL) }
            case 2: await zoo.host.shutdown()
            default: break
            }
            let result = await uses.result
            await provider.shutdown()
            try result.get()
        }
        await zoo.host.shutdown()
        #expect(zoo.processes.isEmpty, "\(one)")
        return failure.map(\.message)
    }

    private static let isWithin = ProcessInfo.processInfo.environment["CERTPROV_TEST_LEFTOVERS"] != nil

    @Test("Many plugins leave no process, descriptor or directory", .disabled(if: isWithin))
    func nothingIsLeftOpenAfterManyPlugins() async throws {
        let directory = try TemporaryDirectory()
        try await Subprocess.runTests(
            ["manyPluginsLeaveNothingOpen"], of: "ZooTests/manyPluginsLeaveNothingOpen",
            with: ["CERTPROV_TEST_LEFTOVERS=1", "TMPDIR=\(directory.path)"])
        #expect(directory.contents() == [])
    }

    /// In a process of its own, whose descriptors are counted.
    @Test(.enabled(if: isWithin)) func manyPluginsLeaveNothingOpen() async throws {
        func round() async throws {
            for behaviour in ["none", "crashes at obtain", "closes standard output", "hangs at hello"] {
                let zoo = try Zoo(behaviour)
                let provider = try? zoo.provider(["timeout": "1"])
                _ = await failure { _ = try await provider?.getCertificate(NoUserInteraction()) }
                await provider?.shutdown()
                await zoo.host.shutdown()
                #expect(zoo.processes.isEmpty)
            }
        }
        try await round()
        let before = descriptors()
        let rounds = TestLength.rounds(2, soak: 100)
        var memory: [Int] = []
        for _ in 0..<rounds {
            try await round()
            memory.append(residentMemory())
        }
        #expect(descriptors() == before)
        // One-time allocations are made after the first quarter.
        let growth = (memory.last ?? 0) - memory[rounds / 4]
        #expect(growth < 2 << 20, "\(memory)")
    }

    /// In bytes.
    private func residentMemory() -> Int {
        let fields = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ") ?? []
        return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(getpagesize()) : 0
    }

    private func descriptors() -> Int {
        (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0
    }
}
