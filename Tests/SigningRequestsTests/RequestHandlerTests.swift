import CertificateProviding
import Crypto
import Foundation
import Logging
import Signing
import SigningRequests
import Synchronization
import TestSupport
import Testing

@Suite struct RequestHandlerTests {
    private let folder: TemporaryDirectory
    private let authority: TestAuthority
    private let identity: Identity

    init() throws {
        folder = try TemporaryDirectory()
        authority = try TestAuthority()
        identity = try authority.issue("person", notAfter: Date(timeIntervalSinceNow: 864_000))
    }

    // MARK: - Parts

    /// An identity that a test changes, and that counts the uses of its key.
    private final class TestSigner: RequestSigner {
        struct State {
            var certificate: Result<X509Certificate, ProviderError>
            var identity: Result<Identity, ProviderError>
            var uses = 0
        }
        private let state: Mutex<State>

        init(_ identity: Identity) {
            state = Mutex(State(certificate: .success(identity.certificate), identity: .success(identity)))
        }

        func change(_ body: (inout State) -> Void) { state.withLock { body(&$0) } }
        var uses: Int { state.withLock(\.uses) }

        func certificate() async throws(ProviderError) -> X509Certificate {
            let result = state.withLock(\.certificate)
            return try result.get()
        }

        func identity() async throws(ProviderError) -> Identity {
            let result = state.withLock { state in
                state.uses += 1
                return state.identity
            }
            return try result.get()
        }
    }

    /// A person who does what a test says.
    private final class TestPrompt: ApprovalPrompt {
        let name = "terminal"
        private let answer: @Sendable (SigningQuestion) async throws(ProviderError) -> ApprovalAnswer
        private let asked = Mutex<[SigningQuestion]>([])
        var questions: [SigningQuestion] { asked.withLock(\.self) }

        init(
            _ answer: @escaping @Sendable (SigningQuestion) async throws(ProviderError) -> ApprovalAnswer = {
                _ throws(ProviderError) in .approved
            }
        ) { self.answer = answer }

        func answer(
            to question: SigningQuestion, within time: Duration
        ) async throws(ProviderError) -> ApprovalAnswer {
            asked.withLock { $0.append(question) }
            return try await answer(question)
        }
    }

    private static let key = "the key"

    private static func registry(unattended: Set<SigningOperation> = [], perHour: Int = 60) -> RequestRegistry {
        var registry = RequestRegistry(
            (1...9).map { number in
                .init(
                    number: number, name: "Bank \(number)", key: SecretBytes(utf8: key),
                    operations: [.signPDF, .signChallenge], unattended: unattended, unattendedPerHour: perHour)
            })
        registry.userCode = "17"
        return registry
    }

    private func handler(
        _ registry: RequestRegistry = registry(), _ signer: TestSigner? = nil,
        prompt: any ApprovalPrompt = TestPrompt(),
        timeStamps: TimeStampServer? = nil, now: @escaping @Sendable () -> Date = { Date() }
    ) -> RequestHandler {
        RequestHandler(
            registry, signer ?? TestSigner(identity), timeStamps: timeStamps, prompt: prompt, directory: directory,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }, now: now)
    }

    private var directory: String { folder.path + "/requests" }

    private static func request(_ operation: SigningOperation, _ data: [UInt8], client: Int = 1) -> [UInt8] {
        let code = HMAC<SHA256>.authenticationCode(
            for: Data(SHA256.hash(data: data)), using: SymmetricKey(data: Data(key.utf8)))
        let logo: [UInt8] = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]
        return Array(
            RequestURL(
                scheme: "sima", host: operation.rawValue,
                items: [
                    .init("scheme", "bank"), .init(operation.dataItem, data.base64),
                    .init("document-name", "a/b/contract.pdf"),
                    .init("service-name", "Service"), .init("client-id", "\(client)"),
                    .init("signature", Array(code).base64),
                    .init("service-logo", "data:image/png;base64," + logo.base64), .init("user-code", "17"),
                    .init("request-id", "R1"),
                ]
            ).text.utf8)
    }

    private static let challenge = Array("a challenge".utf8)

    private func outcomes() throws -> [String] {
        try RequestJournal(directory: directory).entries(newest: 1000).entries.map {
            "\($0.outcome) \($0.approver ?? "-")"
        }
    }

    // MARK: - Signatures

    @Test("A challenge that is approved is signed as it is, and the journal says so")
    func challenge() async throws {
        let prompt = TestPrompt()
        let reply = await handler(prompt: prompt).reply(
            to: Self.request(.signChallenge, Self.challenge), from: "test", isHandler: false)
        let url = try #require(RequestURL(Array(reply.url.utf8)))
        #expect(reply.code == nil && url.scheme == "bank" && url.host == "sign-challenge")
        #expect(url.items.map(\.name) == ["status", "signature", "certificate"] && url["status"] == "success")
        let leaf = try X509Certificate(derRepresentation: try #require(url["certificate"]?.strictBase64))
        let key = try P256.Signing.PublicKey(x963Representation: leaf.publicKey.keyBits)
        let signature = try P256.Signing.ECDSASignature(
            derRepresentation: Data(try #require(url["signature"]?.strictBase64)))
        #expect(key.isValidSignature(signature, for: SHA256.hash(data: Self.challenge)))
        #expect(try outcomes() == ["signed terminal"])
        let entry = try #require(try RequestJournal(directory: directory).entries(newest: 1).entries.first)
        #expect(
            entry.client == 1 && entry.requestID == "R1" && entry.operation == .signChallenge && entry.peer == "test")
        #expect(entry.digest == SHA256.hash(data: Self.challenge).map { String(format: "%02x", $0) }.joined())
        #expect(
            entry.fingerprint == SHA256.hash(data: leaf.derRepresentation).map { String(format: "%02x", $0) }.joined())
        let question = try #require(prompt.questions.first)
        #expect(question.clientName == "Bank 1" && question.serviceName == "Service" && question.digest == entry.digest)
        #expect(question.size == Self.challenge.count && question.documentName == "contract.pdf")
    }

    @Test("A document is shown as a copy, signed, and the copy is gone")
    func document() async throws {
        let prompt = TestPrompt { question in
            let bytes = question.documentPath.flatMap { try? Data(contentsOf: URL(filePath: $0)) }
            return bytes == Data(TestPDF.bytes) ? .approved : .declined
        }
        let reply = await handler(prompt: prompt).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        let url = try #require(RequestURL(Array(reply.url.utf8)))
        let document = try #require(url["document"]?.strictBase64)
        #expect(document.starts(with: TestPDF.bytes) && document.count > TestPDF.bytes.count)
        #expect(prompt.questions.first?.pages == 1 && prompt.questions.first?.signerName == "person")
        let path = try #require(prompt.questions.first?.documentPath)
        #expect(!FileManager.default.fileExists(atPath: path))
        // The second time, the person is told when it was signed.
        _ = await handler(prompt: prompt).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        #expect(prompt.questions.map { $0.signedBefore != nil } == [false, true])
    }

    @Test("One unattended request has one signature, however often it comes at once", arguments: [1, 4])
    func oneSignature(handlers count: Int) async throws {
        let registry = Self.registry(unattended: [.signChallenge], perHour: 1000)
        let handlers = (0..<count).map { _ in handler(registry) }
        for round in 0..<5 {
            let request = Self.request(.signChallenge, [UInt8(round)])
            let codes = await withTaskGroup(of: ResponseCode?.self) { group in
                for number in 0..<8 {
                    group.addTask {
                        await handlers[number % count].reply(to: request, from: "test", isHandler: false).code
                    }
                }
                return await group.reduce(into: [ResponseCode?]()) { $0.append($1) }
            }
            #expect(codes.filter { $0 == nil }.count == 1, "\(codes)")
            #expect(codes.filter { $0 == .validateRequestError }.count == 7, "\(codes)")
        }
    }

    @Test("The hourly limit holds for requests that come at once")
    func hourlyLimitAtOnce() async throws {
        let registry = Self.registry(unattended: [.signChallenge], perHour: 3)
        let handlers = (0..<4).map { _ in handler(registry) }
        let codes = await withTaskGroup(of: ResponseCode?.self) { group in
            for number in 0..<12 {
                let request = Self.request(.signChallenge, [UInt8(number)])
                group.addTask { await handlers[number % 4].reply(to: request, from: "test", isHandler: false).code }
            }
            return await group.reduce(into: [ResponseCode?]()) { $0.append($1) }
        }
        #expect(
            codes.filter { $0 == nil }.count == 3 && codes.filter { $0 == .approveRequestError }.count == 9, "\(codes)")
    }

    @Test("A request that was interrupted is not signed again without a person within a day")
    func interrupted() async throws {
        let registry = Self.registry(unattended: [.signChallenge])
        let digest = Array(SHA256.hash(data: Self.challenge)).hexEncoded
        let entry = JournalEntry(
            time: Date(), client: 1, requestID: nil, operation: .signChallenge, digest: digest, outcome: .interrupted,
            approver: JournalEntry.unattended, fingerprint: nil, peer: "")
        _ = try RequestJournal(directory: directory).begin(entry)
        func code(after seconds: Double) async -> ResponseCode? {
            await handler(registry, now: { Date(timeIntervalSinceNow: seconds) }).reply(
                to: Self.request(.signChallenge, Self.challenge), from: "test", isHandler: false
            ).code
        }
        #expect(await code(after: 0) == .validateRequestError)
        #expect(await code(after: 90_000) == nil)
    }

    @Test("The time of the person is whole, however long another question is on the screen")
    func timeRunsFromTheScreen() async throws {
        let given = Mutex<Duration?>(nil)
        let prompt = TimedPrompt { time in given.withLock { $0 = time } }
        var other = try await TerminalLock.acquire(in: directory, within: .seconds(60))
        async let answer = ExclusivePrompt(prompt, directory: directory).answer(to: .example(), within: .seconds(300))
        #expect(other != nil)
        other = nil
        #expect(try await answer == .approved && given.withLock(\.self) == .seconds(300))
    }

    private struct TimedPrompt: ApprovalPrompt {
        let name = "terminal"
        let asked: @Sendable (Duration) -> Void

        func answer(
            to question: SigningQuestion, within time: Duration
        ) async throws(ProviderError) -> ApprovalAnswer {
            asked(time)
            return .approved
        }
    }

    // MARK: - Refusals

    @Test("A person who declines, does not answer or cannot be asked: each has its code, and no key is used")
    func people() async throws {
        let answers: [(Result<ApprovalAnswer, ProviderError>, ResponseCode)] = [
            (.success(.declined), .operationCanceled), (.success(.timedOut), .approveRequestError),
            (.failure(ProviderError(.interactionRequired, "No terminal.")), .approveRequestError),
        ]
        for (answer, code) in answers {
            let signer = TestSigner(identity)
            let prompt = TestPrompt { _ throws(ProviderError) in try answer.get() }
            let reply = await handler(Self.registry(), signer, prompt: prompt).reply(
                to: Self.request(.signChallenge, Self.challenge), from: "test", isHandler: false)
            #expect(reply.code == code && signer.uses == 0)
            #expect(reply.url == "bank://sign-challenge?status=error&message=\(code)")
        }
        #expect(
            try outcomes() == ["operation-canceled terminal", "approve-request-error -", "approve-request-error -"])
    }

    @Test("Who is not authenticated is not asked about, and is not in the journal")
    func unauthenticated() async throws {
        let (prompt, signer) = (TestPrompt(), TestSigner(identity))
        var request = Self.request(.signChallenge, Self.challenge)
        request.replace("client-id=1".utf8, with: "client-id=10".utf8)
        let reply = await handler(Self.registry(), signer, prompt: prompt).reply(
            to: request, from: "test", isHandler: false)
        #expect(reply.code == .validateRequestError && prompt.questions.isEmpty && signer.uses == 0)
        #expect(!FileManager.default.fileExists(atPath: directory))
    }

    @Test("Without a usable identity nobody is asked")
    func identities() async throws {
        let others = [
            try authority.issue("p384", kind: .p384), try authority.issue("rsa", kind: .rsa2048),
            try authority.issue("agreement", permitsSignatures: false),
            try authority.issue(
                "expired", notBefore: Date(timeIntervalSinceNow: -7200), notAfter: Date(timeIntervalSinceNow: -3600)),
        ]
        for identity in others {
            let prompt = TestPrompt()
            let reply = await handler(Self.registry(), TestSigner(identity), prompt: prompt).reply(
                to: Self.request(.signChallenge, Self.challenge), from: "test", isHandler: false)
            #expect(reply.code == .signChallengeError && prompt.questions.isEmpty, "\(identity.certificate.subject)")
        }
        let signer = TestSigner(try authority.issue("ed25519", kind: .ed25519))
        let reply = await handler(Self.registry(), signer).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        #expect(reply.code == .signDocumentError)
        signer.change { $0.certificate = .failure(ProviderError(.tokenNotPresent, "No token.")) }
        let gone = await handler(Self.registry(), signer).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        #expect(gone.code == .signDocumentError && gone.reason == "No token.")
    }

    @Test("A key that fails, and an identity that has changed since the question, sign nothing")
    func keys() async throws {
        let signer = TestSigner(identity)
        signer.change { $0.identity = .failure(ProviderError(.pinLocked, "The PIN is locked.")) }
        let request = Self.request(.signChallenge, Self.challenge)
        let locked = await handler(Self.registry(), signer).reply(to: request, from: "test", isHandler: false)
        #expect(locked.code == .signChallengeError && locked.reason == "The PIN is locked.")
        let other = try authority.issue("other")
        signer.change { $0.identity = .success(other) }
        let changed = await handler(Self.registry(), signer).reply(to: request, from: "test", isHandler: false)
        #expect(changed.code == .signChallengeError)
        #expect(try outcomes() == ["sign-challenge-error terminal", "sign-challenge-error terminal"])
    }

    @Test("Without its time stamp a document is not signed")
    func timeStamp() async throws {
        var server = try TimeStampServer("http://127.0.0.1:9/", anchors: [authority.root])
        server.timeout = .seconds(2)
        var registry = Self.registry()
        registry.hasTimeStamp = true
        let reply = await handler(registry, timeStamps: server).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        #expect(reply.code == .timestampRequestError, "\(reply)")
        #expect(try outcomes() == ["timestamp-request-error terminal"])
    }

    @Test("A journal that cannot be written: no key is used", arguments: [Set<SigningOperation>(), [.signChallenge]])
    func journal(unattended: Set<SigningOperation>) async throws {
        let signer = TestSigner(identity)
        try FileManager.default.createDirectory(
            atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        try FileManager.default.createDirectory(
            atPath: directory + "/journal.jsonl", withIntermediateDirectories: false)
        let reply = await handler(Self.registry(unattended: unattended), signer).reply(
            to: Self.request(.signChallenge, Self.challenge), from: "test", isHandler: false)
        #expect(reply.code == .internalError && signer.uses == 0, "\(reply)")
    }

    // MARK: - Limits

    @Test("Eight requests wait, two of a client; more are refused, and each gets one reply")
    func crowd() async throws {
        let (wait, release) = AsyncStream.makeStream(of: Void.self)
        let prompt = TestPrompt { _ in
            for await _ in wait {}
            return .approved
        }
        let handler = handler(prompt: prompt)
        let replies = await withTaskGroup(of: RequestReply.self) { group in
            for number in 0..<27 {
                group.addTask {
                    await handler.reply(
                        to: Self.request(.signChallenge, [UInt8(number)], client: number % 9 + 1), from: "test",
                        isHandler: false)
                }
            }
            var replies: [RequestReply] = []
            for await reply in group {
                replies.append(reply)
                // All that are refused have been.
                if replies.count == 19 { release.finish() }
            }
            return replies
        }
        #expect(replies.filter { $0.code == nil }.count == 8)
        #expect(replies.filter { $0.code == .approveRequestError }.count == 19)
        let clients = prompt.questions.map(\.client)
        #expect(Set(clients).allSatisfy { client in clients.filter { $0 == client }.count <= 2 })
        #expect(
            try FileManager.default.contentsOfDirectory(atPath: directory + "/pending").filter { !$0.hasPrefix(".") }
                == [])
    }

    @Test("Without a person: once a day for the same data, also after a restart, and so many an hour")
    func unattended() async throws {
        let registry = Self.registry(unattended: [.signChallenge], perHour: 3)
        let (signer, prompt) = (TestSigner(identity), TestPrompt())
        func code(_ data: [UInt8], client: Int = 1, after seconds: Double = 0) async -> ResponseCode? {
            // Each by a handler of its own: as after a restart.
            await handler(registry, signer, prompt: prompt, now: { Date(timeIntervalSinceNow: seconds) }).reply(
                to: Self.request(.signChallenge, data, client: client), from: "test", isHandler: false
            ).code
        }
        #expect(await code([1]) == nil)
        #expect(await code([1]) == .validateRequestError)
        #expect(await code([1], after: 86_000) == .validateRequestError)
        // The clock was set back.
        #expect(await code([1], after: -100_000) == .validateRequestError)
        #expect(await code([1], client: 2) == nil)
        #expect(await code([2]) == nil)
        #expect(await code([3]) == nil)
        #expect(await code([4]) == .approveRequestError)
        #expect(await code([4], client: 2) == nil)
        #expect(await code([4], after: 3700) == nil)
        #expect(await code([1], after: 90_000) == nil)
        #expect(prompt.questions.isEmpty)
        // Documents are asked about.
        _ = await handler(registry, signer, prompt: prompt).reply(
            to: Self.request(.signPDF, TestPDF.bytes), from: "test", isHandler: false)
        #expect(prompt.questions.count == 1)
    }
}
