import CLinux
package import CertificateProviding
package import FoundationEssentials
import Glibc
import IdentityStore

/// The requests of this user that wait for a person: a folder for each, which goes with its process.
///
///     pending/.lock                  taken by a process that adds a request or removes dead ones
///     pending/<id>/question.json     the question; locked for as long as its process lives
///     pending/<id>/document.pdf      the data, read-only; `challenge` for a challenge
///     pending/<id>/logo.png          or .jpeg, .gif, .webp; absent if the request has none
///     pending/<id>/waiting           a named pipe for the answer, if the queue asks
///     pending/<id>/answered          the same pipe after the answer: the first answer has renamed it
///
/// A folder appears and disappears as a whole, by a rename. All calls block on the disk.
package struct PendingRequests: Sendable {
    package static let usualMaximum = 8

    let path: String
    let maximum: Int
    private let maximumOfClient: Int
    private let files: FileSystem

    /// - Parameters:
    ///   - directory: That of the journal. Created when the first request waits, with mode 0700.
    ///   - maximum: How many requests may wait.
    ///   - maximumOfClient: How many requests of one client may wait.
    package init(directory: String, maximum: Int = Self.usualMaximum, maximumOfClient: Int = 2) {
        self.init(directory: directory, maximum: maximum, maximumOfClient: maximumOfClient, files: .system)
    }

    init(directory: String, maximum: Int = Self.usualMaximum, maximumOfClient: Int = 2, files: FileSystem) {
        path = directory + "/pending"
        (self.maximum, self.maximumOfClient, self.files) = (maximum, maximumOfClient, files)
    }

    // MARK: - Of the process that has the request

    /// The reason why a request does not wait.
    package enum Refusal: Error, Sendable {
        /// The limit of waiting requests is reached; the text says whose.
        case tooMany(String)
        /// The disk is full or cannot be written to, or another process holds the lock for long.
        case notStored(ProviderError)
    }

    /// Adds a request to those that wait.
    ///
    /// - Parameters:
    ///   - question: Gets its id and its paths here.
    ///   - data: The document or the challenge, which the folder has from now on.
    ///   - logo: The kind (`png`, `jpeg`, `gif` or `webp`) and the content of an image.
    ///   - isQueued: Whether ``QueuePrompt`` asks, so that ``decide(_:approve:)`` can answer.
    package func admit(
        _ question: SigningQuestion, data: [UInt8], logo: (kind: String, bytes: [UInt8])? = nil, isQueued: Bool
    ) throws(Refusal) -> PendingRequest {
        let result: Result<PendingRequest, Refusal>
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(path, files)
            let lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
            defer { withExtendedLifetime(lock) {} }
            removeDead(directory)
            let clients = Self.waiting(in: directory).map(\.question.client)
            let ofClient = clients.filter { $0 == question.client }.count
            result =
                if clients.count >= maximum {
                    .failure(.tooMany("\(clients.count) requests wait for an answer already"))
                } else if ofClient >= maximumOfClient {
                    .failure(.tooMany("\(ofClient) requests of this client wait for an answer already"))
                } else {
                    .success(try store(question, data, logo, isQueued, in: directory))
                }
        } catch {
            throw .notStored(
                error.error(
                    .storeWriteFailed,
                    "The request cannot be stored while it waits for an answer: \(error.reason.withVisibleControls)."))
        }
        return try result.get()
    }

    private func store(
        _ question: SigningQuestion, _ data: [UInt8], _ logo: (kind: String, bytes: [UInt8])?, _ isQueued: Bool,
        in directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) -> PendingRequest {
        var question = question
        // The names are this user's, so that they need not be secret.
        let taken = try directory.entries()
        var id = Self.newID()
        while taken.contains(id) { id = Self.newID() }
        question.id = id
        for text in [\SigningQuestion.clientName, \.serviceName, \.signer, \.peer] {
            question[keyPath: text] = question[keyPath: text].cut(to: Self.maximumText)
        }
        question.documentName = question.documentName?.cut(to: Self.maximumText)
        question.requestID = question.requestID?.cut(to: Self.maximumText)
        let logo = logo.flatMap { Self.logoKinds.contains($0.kind) ? (name: "logo.\($0.kind)", bytes: $0.bytes) : nil }
        question.logoPath = logo.map { "\(path)/\(id)/\($0.name)" }
        if question.operation == .signPDF { question.documentPath = "\(path)/\(id)/\(question.operation.fileName)" }
        let encoded: [UInt8]
        do { encoded = Array(try JSONEncoder().encode(question)) } catch {
            throw SafeDirectory.Refusal(reason: "the question cannot be encoded")
        }

        let new = Self.newPrefix + id
        do throws(SafeDirectory.Refusal) {
            let folder = try directory.create(new, files)
            try folder.createFile(question.operation.fileName, data, mode: 0o400, files)
            if let logo { try folder.createFile(logo.name, logo.bytes, mode: 0o400, files) }
            try folder.createFile(Self.questionFile, encoded, files)
            let lock = openat(folder.descriptor, Self.questionFile, O_RDWR | O_CLOEXEC | O_NOFOLLOW)
            guard lock >= 0, flock(lock, LOCK_EX | LOCK_NB) == 0 else {
                let failure = folder.failure("\(folder.path) cannot be locked")
                close(lock)
                throw failure
            }
            var pipe: Int32 = -1
            if isQueued {
                // For writing too: else the pipe would end with its first writer.
                guard mkfifoat(folder.descriptor, Self.waitingPipe, 0o600) == 0,
                    case let opened = Self.openPipe(folder, Self.waitingPipe, O_RDWR), opened >= 0
                else {
                    let failure = folder.failure("\(folder.path) cannot have a named pipe")
                    close(lock)
                    throw failure
                }
                pipe = opened
            }
            // It closes lock and pipe from here on.
            let request = PendingRequest(question, directory, folder, lock: lock, pipe: pipe, files)
            guard files.rename(directory.descriptor, new, id) == 0 else {
                throw directory.failure("\(path) cannot be written to")
            }
            return request
        } catch {
            try? directory.removeTree(new, files)
            throw error
        }
    }

    // MARK: - Of any process

    /// A request that waits.
    package struct Waiting: Sendable, Equatable {
        package enum State: String, Sendable {
            /// ``PendingRequests/decide(_:approve:)`` can answer.
            case waiting
            /// It has its answer, or its time is up.
            case answered
            /// Another prompt asks: at a terminal, or by pinentry.
            case askedElsewhere
        }

        package var question: SigningQuestion
        package var state: State

        /// When it is given up; `nil` where only the process that asks knows.
        package var deadline: Date? { state == .askedElsewhere ? nil : question.deadline }

        /// Checks that the queue takes an answer.
        ///
        /// - Throws: `operationNotAllowed`.
        package func requireAnswerable() throws(ProviderError) {
            switch state {
            case .waiting: break
            case .answered: throw PendingRequests.answered(question.id)
            case .askedElsewhere:
                throw ProviderError(
                    .operationNotAllowed,
                    "The request \(question.id) is asked about elsewhere, at a terminal or by pinentry, and not by the queue; "
                        + "answer it there.")
            }
        }
    }

    /// The requests that wait, by their deadlines. Removes what dead processes have left.
    ///
    /// - Throws: `storeReadFailed`.
    package func list() throws(ProviderError) -> [Waiting] {
        guard let directory = try open() else { return [] }
        return Self.waiting(in: directory).sorted { $0.question.deadline < $1.question.deadline }
    }

    /// A request that waits.
    ///
    /// - Throws: `notFound`, `storeReadFailed`.
    package func waiting(_ id: String) throws(ProviderError) -> Waiting {
        guard let directory = try open(), let waiting = Self.waiting(id, in: directory) else { throw Self.gone(id) }
        return waiting
    }

    /// Answers a request. The first answer counts.
    ///
    /// - Parameter question: As it was shown: an answer to other data does not count.
    /// - Throws: `notFound` if the request does not wait any more; `operationNotAllowed` if it was answered, or another prompt asks;
    ///   `storeReadFailed`.
    package func decide(_ question: SigningQuestion, approve: Bool) throws(ProviderError) {
        let id = question.id
        guard let directory = try open(), let waiting = Self.waiting(id, in: directory),
            waiting.question.digest == question.digest,
            let folder = try? directory.directory(id)
        else { throw Self.gone(id) }
        try waiting.requireAnswerable()
        let pipe = Self.openPipe(folder, Self.waitingPipe, O_WRONLY)
        guard pipe >= 0 else { throw errno == ENOENT ? Self.answered(id) : Self.gone(id) }
        defer { close(pipe) }
        guard files.rename(folder.descriptor, Self.waitingPipe, Self.answeredPipe) == 0 else {
            if errno == ENOENT { throw Self.waiting(id, in: directory) == nil ? Self.gone(id) : Self.answered(id) }
            throw ProviderError(
                .storeWriteFailed,
                "The request \(id) cannot be answered: \(folder.path.withVisibleControls): \(errorText(errno)).")
        }
        let answer = Array(Self.answer(to: question, approve: approve).utf8)
        guard certprov_write(pipe, answer, answer.count) == answer.count else { throw Self.gone(id) }
    }

    // MARK: - Of the queue

    /// Opens the pipe of a request of this process.
    func openPipe(of question: SigningQuestion) throws(ProviderError) -> Int32 {
        if let directory = try open(), Self.isID(question.id), let folder = try? directory.directory(question.id) {
            for name in [Self.waitingPipe, Self.answeredPipe] {
                let pipe = Self.openPipe(folder, name, O_RDWR)
                if pipe >= 0 { return pipe }
            }
        }
        throw Self.gone(question.id)
    }

    /// Refuses answers from now on. Returns false if there was one already.
    func refuseAnswers(to question: SigningQuestion) -> Bool {
        guard let directory = try? SafeDirectory.open(path), let folder = try? directory.directory(question.id) else {
            return true
        }
        return files.rename(folder.descriptor, Self.waitingPipe, Self.answeredPipe) == 0
    }

    static func answer(to question: SigningQuestion, approve: Bool) -> String {
        "\(approve ? "approve" : "decline") \(question.digest)\n"
    }

    // MARK: -

    static let questionFile = "question.json"
    private static let waitingPipe = "waiting"
    private static let answeredPipe = "answered"
    private static let newPrefix = ".new-"
    static let gonePrefix = ".gone-"
    /// In code points. A question shows less of it.
    private static let maximumText = 1024
    private static let maximumQuestion = 1 << 17
    static let logoKinds = ["png", "jpeg", "gif", "webp"]

    private static let letters = Array("abcdefghjkmnpqrstuvwxyz23456789")

    private static func newID() -> String { String((0..<6).compactMap { _ in letters.randomElement() }) }

    private static func isID(_ text: String) -> Bool { text.count == 6 && text.allSatisfy(letters.contains) }

    /// Opens the directory after the dead requests are removed, if no other process is at it; `nil` if there is none.
    private func open() throws(ProviderError) -> SafeDirectory? {
        do throws(SafeDirectory.Refusal) {
            guard let directory = try SafeDirectory.open(path) else { return nil }
            if let lock = try? StoreLock(in: directory, timeout: .zero, files) {
                withExtendedLifetime(lock) { removeDead(directory) }
            }
            return directory
        } catch {
            throw ProviderError(
                .storeReadFailed, "The waiting requests cannot be read: \(error.reason.withVisibleControls).")
        }
    }

    /// Removes what dead processes have left, as far as possible. Call it with the lock held: no folder is being made then.
    private func removeDead(_ directory: SafeDirectory) {
        for name in (try? directory.entries()) ?? [] {
            if name.hasPrefix(Self.newPrefix) || name.hasPrefix(Self.gonePrefix) {
                try? directory.removeTree(name, files)
            } else if Self.isID(name), let folder = try? directory.directory(name), !Self.isAlive(folder) {
                _ = files.rename(directory.descriptor, name, Self.gonePrefix + name)
                try? directory.removeTree(Self.gonePrefix + name, files)
            }
        }
    }

    /// Whether the process of a request lives: it has the question locked.
    private static func isAlive(_ folder: SafeDirectory) -> Bool {
        guard let file = try? folder.openFile(questionFile) else { return false }
        defer { close(file) }
        return flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK
    }

    private static func waiting(in directory: SafeDirectory) -> [Waiting] {
        ((try? directory.entries()) ?? []).compactMap { waiting($0, in: directory) }
    }

    private static func waiting(_ id: String, in directory: SafeDirectory) -> Waiting? {
        guard isID(id), let folder = try? directory.directory(id), isAlive(folder),
            let bytes = try? folder.read(questionFile, atMost: maximumQuestion),
            var question = question(bytes)
        else { return nil }
        question.id = id
        func exists(_ name: String) -> Bool { faccessat(folder.descriptor, name, F_OK, 0) == 0 }
        // In this order, since the pipe may be renamed in between.
        let state: Waiting.State = exists(waitingPipe) ? .waiting : exists(answeredPipe) ? .answered : .askedElsewhere
        return Waiting(question: question, state: state)
    }

    static func question(_ bytes: [UInt8]) -> SigningQuestion? {
        try? JSONDecoder().decode(SigningQuestion.self, from: Data(bytes))
    }

    private static func openPipe(_ folder: SafeDirectory, _ name: String, _ access: Int32) -> Int32 {
        let pipe = openat(folder.descriptor, name, access | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW)
        var status = stat()
        if pipe >= 0, fstat(pipe, &status) != 0 || status.st_mode & S_IFMT != S_IFIFO {
            close(pipe)
            errno = ENXIO
            return -1
        }
        return pipe
    }

    private static func gone(_ id: String) -> ProviderError {
        ProviderError(
            .notFound,
            "No request '\(id.cut(to: 32).withVisibleControls)' waits for an answer: its time is up, its application has gone, or "
                + "there was none. See: certprov requests list, certprov requests log")
    }

    fileprivate static func answered(_ id: String) -> ProviderError {
        ProviderError(
            .operationNotAllowed,
            "The request \(id) has its answer already, or its time is up; the first answer counts. See: certprov requests log"
        )
    }
}

extension SigningOperation {
    /// The file with the data of a request that waits.
    var fileName: String { self == .signPDF ? "document.pdf" : "challenge" }
}

extension String {
    /// The text with at most so many code points, the last of which is an ellipsis if it was longer. A character may have any
    /// number of them.
    func cut(to count: Int) -> String {
        guard unicodeScalars.count > count else { return self }
        return String(UnicodeScalarView(unicodeScalars.prefix(count - 1))) + "…"
    }

    /// The text with at most so many bytes of UTF-8, the last ones an ellipsis if it was longer.
    func cut(toBytes count: Int) -> String {
        guard utf8.count > count else { return self }
        var left = count - "…".utf8.count
        let kept = unicodeScalars.prefix { scalar in
            left -= UTF8.width(scalar)
            return left >= 0
        }
        return String(kept) + "…"
    }
}
