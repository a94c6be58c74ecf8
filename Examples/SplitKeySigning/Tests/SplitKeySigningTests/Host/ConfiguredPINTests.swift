import CertificateProviding
import Foundation
import Glibc
import Synchronization
import Testing

@testable import SplitKeySigning

/// PINs from configured sources: a wrong one is used once, whatever happens.
struct ConfiguredPINTests {
    private func login(
        _ test: TestHost, _ source: SecretSource, isService: Bool = true
    ) async -> ProviderError.Code? {
        // Each time as a process that has just started.
        await ProviderError.of { () throws(ProviderError) in
            try await test.host([.login: source], isService: isService).login(TestHost.user)
        }?.code
    }

    @Test("Ten restarts of a service with a wrong PIN are one try, until its file changes")
    func tenRestarts() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", "73918265\n")
        for _ in 0..<10 { #expect(await login(test, source) == .pinIncorrect) }
        #expect(test.servers.count("/rps/v2/login") == 1)
        #expect(await login(test, try test.file("pin", "\(TestHost.loginPIN)\n")) == nil)
        #expect(await login(test, try test.file("pin", "\(TestHost.loginPIN)\n")) == nil)
        #expect(test.servers.count("/rps/v2/login") == 3)
    }

    @Test("A wrong PIN's error names its user, its source and the next step, and a malformed one's, too")
    func messages() async throws {
        let test = try await TestHost.enrolled()
        func message(_ pin: String) async throws -> String {
            let host = test.host([.login: try test.file("pin", pin)], isService: true)
            return await ProviderError.of { () throws(ProviderError) in
                try await host.login(TestHost.user)
            }?.message ?? ""
        }
        for pin in ["00000000", "1234x", "12345"] {
            let text = try await message(pin)
            #expect(text.contains("login PIN of \(TestHost.user) in file:\(test.directory.path)/pin"), "\(text)")
            #expect(pin != "00000000" || text.contains("'SplitKey.login-pin-source'"), "\(text)")
        }
        test.person.types("00000000", as: .login)
        let typed = await ProviderError.of { () throws(ProviderError) in
            try await test.host().login(TestHost.user)
        }
        #expect(typed?.message.contains("Run the command again with the right login PIN of \(TestHost.user)") == true)
    }

    @Test("Without a person and a source, the setting of the source is named")
    func noSource() async throws {
        let test = try await TestHost.enrolled()
        let login = try test.file("login", TestHost.loginPIN)
        func error(
            _ sources: [MPinID.Scope: SecretSource],
            _ body: (SplitKeyHost) async throws(ProviderError) -> Void
        ) async -> ProviderError? {
            await ProviderError.of { () throws(ProviderError) in
                try await body(test.host(sources, isService: true))
            }
        }
        let errors = [
            (
                "'SplitKey.login-pin-source'",
                await error([:]) { host throws(ProviderError) in try await host.login(TestHost.user) }
            ),
            (
                "'SplitKey.login-pin-source'",
                await error([:]) { host throws(ProviderError) in
                    try await host.enrolLoginKey(code: SecretBytes(utf8: "code"))
                }
            ),
            (
                "'SplitKey.pin-source'",
                await error([.login: login]) { host throws(ProviderError) in
                    _ = try await host.sign([1], as: TestHost.user) { _ in true }
                }
            ),
            (
                "--new-pin-source",
                await error([.login: login]) { host throws(ProviderError) in
                    try await host.changePIN(of: TestHost.user, .login)
                }
            ),
        ]
        for (name, error) in errors {
            #expect(error?.code == .interactionRequired && error?.message.contains(name) == true, "\(name)")
        }
    }

    @Test("A right PIN of one source does not bring back a wrong one of another")
    func rightOfAnother() async throws {
        let test = try await TestHost.enrolled()
        let (wrong, right) = (try test.file("wrong", "00000000"), try test.file("right", TestHost.loginPIN))
        for _ in 0..<3 {
            #expect(await login(test, wrong) == .pinIncorrect)
            #expect(await login(test, right) == nil)
        }
        #expect(test.servers.count("/rps/v2/login") == 4)
    }

    @Test(
        "Where the record of rejected PINs is damaged, none is used until it is written anew", arguments: [true, false])
    func damagedRecord(isSealed: Bool) async throws {
        let test = try await TestHost.enrolled()
        let (one, two) = (try test.file("one", "00000000"), try test.file("two", "11111111"))
        for source in [one, two] { #expect(await login(test, source) == .pinIncorrect) }
        let name = "pin-" + SplitKeyStore.name("https://authority.example", TestHost.user, .login)
        if isSealed {
            try test.storage.updateRecord(named: name) { _ in SecretBytes(utf8: "x") }
        } else {
            try test.damage(name)
        }
        for source in [one, two, one, two, .environment("HOME")] {
            #expect(await login(test, source) == .operationNotAllowed)
        }
        #expect(test.servers.count("/rps/v2/login") == 2)
        // A person goes on as ever.
        #expect(await login(test, one, isService: false) == nil)
        let path = try #require(try test.file("one", TestHost.loginPIN).filePath)
        // The time of a file is that of the last tick of the system's clock.
        try FileManager.default.setAttributes([.modificationDate: Date() + 1], ofItemAtPath: path)
        #expect(await login(test, one) == nil)
        #expect(await login(test, two) == .operationNotAllowed)
    }

    @Test("A disk that is full when a PIN turns out wrong: the PIN is used twice at most; full before that, never")
    func fullDisk() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", "00000000")
        let storage = FullStorage(test.storage)
        let host = { test.host([.login: source], isService: true, storage: storage) }
        func login() async -> ProviderError.Code? {
            await ProviderError.of { () throws(ProviderError) in
                try await host().login(TestHost.user)
            }?.code
        }
        storage.isFull.withLock { $0 = true }
        #expect(await login() == .storeWriteFailed)
        #expect(test.servers.count("/rps/v2/login") == 0)
        test.servers.answer { recorded in
            if recorded.path == "/rps/v2/login" { storage.isFull.withLock { $0 = true } }
            return nil
        }
        var codes: [ProviderError.Code?] = []
        for _ in 0..<4 {
            storage.isFull.withLock { $0 = false }
            codes.append(await login())
        }
        #expect(codes == [.pinIncorrect, .pinIncorrect, .operationNotAllowed, .operationNotAllowed])
        #expect(test.servers.count("/rps/v2/login") == 2)
    }

    @Test("A key that is blocked stays so for a service, which does not ask again")
    func blockedKey() async throws {
        let test = try await TestHost.enrolled()
        for (number, code) in [ProviderError.Code.pinIncorrect, .pinIncorrect, .pinLocked, .pinLocked]
            .enumerated()
        {
            #expect(await login(test, try test.file("pin\(min(number, 2))", "0000000\(min(number, 2))")) == code)
        }
        let source = try test.file("last", "00000000")
        for _ in 0..<3 { #expect(await login(test, source) == .pinLocked) }
        #expect(test.servers.count("/rps/v2/login") == 5)
    }

    @Test("A new key whose confirmation was lost is finished by a PIN that was wrong for the former one")
    func finishedWithFormerlyWrong() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", "00000000")
        #expect(await login(test, source) == .pinIncorrect)
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/dvsconfirm" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host([.login: source]).enrolLoginKey(code: SecretBytes(utf8: "code"))
        }
        #expect(error?.code == .timedOut)
        test.servers.answer { _ in nil }
        // The former key stays.
        #expect(await login(test, source) == .pinIncorrect)
        #expect(try await test.host([.login: source], isService: true).finishedLoginKey() == TestHost.user)
        #expect(await login(test, source) == nil)
        #expect(try test.storage.recordNames().allSatisfy { !$0.hasPrefix("pin-") })
    }

    @Test("A named pipe is refused: it could have another PIN each time")
    func pipe() async throws {
        let test = try await TestHost.enrolled()
        let path = test.directory.path + "/pipe"
        try #require(mkfifo(path, 0o600) == 0)
        #expect(await login(test, .file(path)) == .configurationInvalid)
    }

    @Test("The same for a PIN of the environment, known by its name")
    func environment() async throws {
        let test = try await TestHost.enrolled()
        let name = "SPLITKEY_TEST_\(UInt32.random(in: 0 ... .max))"
        setenv(name, "00000000", 1)
        defer { unsetenv(name) }
        for _ in 0..<5 {
            let error = await ProviderError.of { () throws(ProviderError) in
                try await test.host([.login: .environment(name)], isService: true).login(TestHost.user)
            }
            #expect(error?.code == .pinIncorrect)
            #expect(error?.message.contains("name another variable") == true, "\(error?.message ?? "")")
            #expect(error?.message.contains("dvs change-pin --login") == true)
            #expect(error?.message.contains("write") == false)
        }
        #expect(test.servers.count("/rps/v2/login") == 1)
        // Its value does not count: another name does.
        setenv(name, TestHost.loginPIN, 1)
        #expect(await login(test, .environment(name)) == .pinIncorrect)
        setenv(name + "_2", TestHost.loginPIN, 1)
        defer { unsetenv(name + "_2") }
        #expect(await login(test, .environment(name + "_2")) == nil)
        // So does a change of the PIN, by a person, to that of the variable.
        let source = try test.file("new", TestHost.loginPIN)
        let host = test.host([.login: .environment(name)])
        #expect(try await host.changePIN(of: TestHost.user, .login, from: source) == nil)
        #expect(await login(test, .environment(name)) == nil)
    }

    @Test("A PIN of the environment that was used twice without an answer needs another name")
    func environmentWithoutAnswer() async throws {
        let test = try await TestHost.enrolled()
        let name = "SPLITKEY_TEST_\(UInt32.random(in: 0 ... .max))"
        setenv(name, TestHost.loginPIN, 1)
        defer { unsetenv(name) }
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/login" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        for _ in 0..<2 { #expect(await login(test, .environment(name)) == .timedOut) }
        let error = await ProviderError.of { () throws(ProviderError) in
            try await test.host([.login: .environment(name)], isService: true).login(TestHost.user)
        }
        #expect(error?.code == .operationNotAllowed && error?.message.contains("into another variable") == true)
        #expect(error?.message.contains("file") == false)
    }

    @Test("A person may type another, which is not remembered")
    func personTypesAnother() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", "00000000")
        #expect(await login(test, source, isService: false) == .pinIncorrect)
        #expect(test.person.questions == [])
        #expect(await login(test, source, isService: false) == nil)
        #expect(test.person.questions.count == 1)
        // The right one says nothing about the configured one.
        #expect(await login(test, source) == .pinIncorrect)
        #expect(test.servers.count("/rps/v2/login") == 2)
    }

    /// As a process that is killed before the answer: it writes down nothing more.
    @Test("Answers that never come are two uses at most, of a right PIN too")
    func noVerdict() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", TestHost.loginPIN)
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/login" else { return nil }
            throw ProviderError(.timedOut, "")
        }
        for _ in 0..<10 { _ = await login(test, source) }
        #expect(test.servers.count("/rps/v2/login") == 2)
        test.servers.answer { _ in nil }
        #expect(await login(test, source) == .operationNotAllowed)
        #expect(await login(test, try test.file("pin", TestHost.loginPIN)) == nil)
    }

    @Test("A server that is not there costs no use")
    func noServer() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", TestHost.loginPIN)
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/rps/v2/login/challenge" else { return nil }
            throw ProviderError(.unavailable, "")
        }
        for _ in 0..<5 { #expect(await login(test, source) == .unavailable) }
        test.servers.answer { _ in nil }
        #expect(await login(test, source) == nil)
    }

    private func sign(_ test: TestHost, _ source: SecretSource) async throws -> ProviderError.Code? {
        let login = try test.file("login-pin", TestHost.loginPIN)
        return await ProviderError.of { () throws(ProviderError) in
            try await test.host([.login: login, .signing: source], isService: true)
                .sign([1], as: TestHost.user) { _ in true }
        }?.code
    }

    private static let notAsked = (503, #"{"message":"The verifier was not asked.","verifier":"not asked"}"#)

    @Test("A connection that cannot be opened, and a verifier that was not asked, cost no use")
    func nothingSent() async throws {
        let test = try await TestHost.enrolled()
        let (login, signing) = (try test.file("login", TestHost.loginPIN), try test.file("pin", TestHost.signingPIN))
        test.servers.answer { recorded throws(ProviderError) in
            guard ["/rps/v2/login", "/verify-signature"].contains(recorded.path) else { return nil }
            throw ProviderError(.unavailable, "", reason: .nothingSent)
        }
        for _ in 0..<4 { #expect(await self.login(test, login) == .unavailable) }
        test.servers.answer { _ in nil }
        #expect(await self.login(test, login) == nil)
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/verify-signature" else { return nil }
            throw ProviderError(.unavailable, "", reason: .nothingSent)
        }
        for _ in 0..<4 { #expect(try await sign(test, signing) == .unavailable) }
        test.servers.answer { $0.path == "/verify-signature" ? Self.notAsked : nil }
        for _ in 0..<4 { #expect(try await sign(test, signing) == .unavailable) }
        #expect(test.servers.count("/verify-signature") == 8)
        test.servers.answer { _ in nil }
        #expect(try await sign(test, signing) == nil)
    }

    /// The first answer of each signature is lost: the verifier may have counted it.
    @Test(
        "A verifier that was not asked the second time may have been asked the first time",
        arguments: [503, 401, 200, 0])
    func notAskedAgain(second: Int) async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", TestHost.signingPIN)
        let numbers = Mutex<[String: Int]>([:])
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/verify-signature" else { return nil }
            let u = (try? recorded.signature())?.u ?? ""
            let number = numbers.withLock { numbers in
                numbers[u, default: 0] += 1
                return numbers[u]
            }
            if number == 1 { throw ProviderError(.unavailable, "") }
            if second == 0 { throw ProviderError(.unavailable, "", reason: .nothingSent) }
            if second == 200 { return (200, #"{"verified":false,"status":"InvalidSignature"}"#) }
            // After a refused token the signature is sent again.
            return second == 401 && number == 2 ? (401, "{}") : Self.notAsked
        }
        for _ in 0..<2 {
            #expect(try await sign(test, source) == ([200, 401].contains(second) ? .rejected : .unavailable))
        }
        for _ in 0..<3 { #expect(try await sign(test, source) == .operationNotAllowed) }
        #expect(numbers.withLock(\.count) == 2)
    }

    @Test("A lost answer to a signature is asked for again with the same one")
    func lostVerdict() async throws {
        let test = try await TestHost.enrolled()
        let isLost = Mutex(false)
        test.servers.answer { recorded throws(ProviderError) in
            guard recorded.path == "/verify-signature" else { return nil }
            let isFirst = isLost.withLock { isLost in
                defer { isLost = true }
                return !isLost
            }
            if isFirst { throw ProviderError(.unavailable, "") }
            return nil
        }
        #expect(try await sign(test, try test.file("pin", TestHost.signingPIN)) == nil)
        let sent = try test.servers.recorded.filter { $0.path == "/verify-signature" }.map { try $0.signature() }
        #expect(sent.count == 2 && sent[0] == sent[1])
    }

    @Test("A record of a use says where the PIN is, and nothing that is computed from it")
    func record() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", "73918265")
        #expect(await login(test, source) == .pinIncorrect)
        let name = try #require(try test.storage.recordNames().first { $0.hasPrefix("pin-") })
        let record = try #require(try test.storage.record(named: name)).withUnsafeBytes { Data($0) }
        let all = try #require(try JSONSerialization.jsonObject(with: record) as? [String: Any])
        #expect(all.keys.sorted() == ["uses", "version"])
        let uses = try #require(all["uses"] as? [[String: Any]])
        let members = try #require(uses.first)
        #expect(uses.count == 1 && members.keys.sorted() == ["isRejected", "pending", "source"])
        let file = try FileManager.default.attributesOfItem(atPath: try #require(source.filePath))
        let words = (members["source"] as? String)?.split(separator: " ").map(String.init) ?? []
        let number = try #require(file[.systemFileNumber] as? Int)
        // The device, the inode, the size, and the time of the last change.
        #expect(words.count == 5 && words[0] == "file" && words[2] == "\(number)" && words[3] == "8")
    }

    @Test("Two processes take turns: while one uses the PIN, the other does not")
    func turns() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", TestHost.loginPIN)
        let name = SplitKeyStore.name("https://authority.example", TestHost.user, .login)
        let lease = try test.storage.leaseRecord(named: PINUses.lease(name))
        let waiting = Task { await login(test, source) }
        waiting.cancel()
        #expect(await waiting.value == .operationNotAllowed)
        #expect(test.servers.paths().allSatisfy { $0 != "/rps/v2/login" })
        withExtendedLifetime(lease) {}
    }

    @Test("Several wrong sources are one try each, in turn and by other names, too")
    func severalSources() async throws {
        let test = try await TestHost.enrolled()
        let (one, two) = (try test.file("one", "00000000"), try test.file("two", "11111111"))
        let link = test.directory.path + "/link"
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: test.directory.path + "/one")
        for _ in 0..<3 {
            for source in [one, two, .file(link)] { #expect(await login(test, source) == .pinIncorrect) }
        }
        #expect(test.servers.count("/rps/v2/login") == 2)
    }

    @Test("An answer about something else than the PIN costs a right one nothing")
    func otherAnswers() async throws {
        let test = try await TestHost.enrolled()
        let source = try test.file("pin", TestHost.signingPIN)
        test.servers.answer { recorded in
            recorded.path == "/verify-signature" ? (200, #"{"verified":false,"status":"InvalidSignature"}"#) : nil
        }
        func sign() async -> ProviderError.Code? {
            await ProviderError.of { () throws(ProviderError) in
                try await test.host([.signing: source]).sign([1], as: TestHost.user) { _ in true }
            }?.code
        }
        for _ in 0..<4 { #expect(await sign() == .rejected) }
        test.servers.answer { _ in nil }
        #expect(await sign() == nil)
    }
}

/// A storage whose records of PINs cannot be written while the disk is full.
private final class FullStorage: IdentityStorage {
    let isFull = Mutex(false)
    private let storage: any IdentityStorage

    init(_ storage: any IdentityStorage) { self.storage = storage }

    private func requireSpace(_ name: String) throws(ProviderError) {
        guard name.hasPrefix("pin-"), isFull.withLock(\.self) else { return }
        throw ProviderError(.storeWriteFailed, "No space left on device.")
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        try requireSpace(name)
        try storage.updateRecord(named: name, change)
    }

    func removeRecord(named name: String) throws(ProviderError) {
        try requireSpace(name)
        try storage.removeRecord(named: name)
    }

    func record(named name: String) throws(ProviderError) -> SecretBytes? { try storage.record(named: name) }
    func recordNames() throws(ProviderError) -> [String] { try storage.recordNames() }
    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: name)
    }

    func entry(named name: String) throws(ProviderError) -> StoredIdentity? { nil }
    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {}
    func removeEntry(named name: String) throws(ProviderError) {}
    func entryNames() throws(ProviderError) -> [String] { [] }
}
