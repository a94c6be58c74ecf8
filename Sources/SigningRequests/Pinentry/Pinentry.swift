import CLinux
package import CertificateProviding
import Dispatch
import FoundationEssentials
import Glibc
import Synchronization

/// Asks a person by a pinentry: any program of that protocol. One question at a time, in the order in which they are asked, on a
/// thread of its own.
///
/// The program runs for one question, without a shell and without arguments, and remembers nothing of it.
package final class Pinentry: Sendable {
    /// The program where none is configured.
    package static let usualProgram = "pinentry"
    /// How long the program may take for what needs no person.
    private static let setupTime = Duration.seconds(30)

    private let program: @Sendable () throws(ProviderError) -> String
    private let environment: [String: String]
    private let terminal: @Sendable () -> String?
    private let thread = BlockingExecutor.threads(maximum: 1)
    private struct State {
        /// The questions without an answer.
        var open: [ObjectIdentifier: Cancellation] = [:]
        var hasEnded = false
    }
    private let state = Mutex(State())

    /// - Parameters:
    ///   - environment: The variables of this process. The program gets those that such programs use.
    ///   - terminal: Returns the terminal that a program without a display asks at; `nil` for that of this process, else that of
    ///     `GPG_TTY`.
    ///   - program: Returns its absolute path, or its name in `PATH`. Called at each question.
    package init(
        environment: [String: String] = ProcessInfo.processInfo.environment, terminal: (@Sendable () -> String?)? = nil,
        _ program: @escaping @Sendable () throws(ProviderError) -> String
    ) {
        let environment = environment.filter { !$0.value.isEmpty }
        self.environment = environment
        self.terminal = terminal ?? { HeldTerminal.name(environment["GPG_TTY"]) }
        self.program = program
    }

    /// The words of a consent.
    package struct Words: Sendable {
        /// The labels of the button that approves and the one that declines.
        package var approve: String
        package var decline: String
        /// The word that approves, where a key that was meant for another window or program would press a button.
        package var typed: String

        package init(approve: String, decline: String, typed: String) {
            (self.approve, self.decline, self.typed) = (approve, decline, typed)
        }
    }

    /// Asks for a consent: for an answer `OK` it returns `approved`, and for nothing else.
    ///
    /// A program of GnuPG but pinentry-tty preselects the button that approves, so that a bare Enter presses it: there the person types
    /// a word instead.
    ///
    /// - Parameters:
    ///   - text: It must not contain control characters but line ends. It is cut if it is too long.
    ///   - time: Then the program is ended. `nil` to wait for the person.
    ///   - opening: Shows a document, by another button or the word `open`, and returns a sentence if it cannot. The question is asked again
    ///     afterwards, in what is left of the time.
    /// - Throws: `interactionRequired` where the program is missing, cannot ask or does not keep to the protocol; `userCancelled` if
    ///   the task is cancelled, and after ``end()``.
    package func confirm(
        _ text: String, _ words: Words, within time: Duration? = nil, opening: (@Sendable () async -> String?)? = nil
    ) async throws(ProviderError) -> ApprovalAnswer {
        let end = time.map { ContinuousClock.now + $0 }
        var (problem, tries, openings) = (String?.none, 0, 0)
        while true {
            let opens = opening != nil && openings < Self.maximumRepetitions
            switch try await ask(.consent(text, words, opens: opens, problem: problem), until: end) {
            case .answer: return .approved
            case .declined: return .declined
            case .timedOut: return .timedOut
            case .another where opens:
                openings += 1
                problem = await opening?()
            // The person has looked often enough.
            case .another: return .declined
            case .anotherWord:
                tries += 1
                guard tries < Self.maximumRepetitions else { return .declined }
                problem = "This was not one of the words."
            }
        }
    }

    /// How often a question is asked again. A program that gives such an answer by itself comes to an end.
    private static let maximumRepetitions = 5
    /// The word that opens the document.
    private static let openingWord = "open"

    /// Asks for a secret.
    ///
    /// - Parameters:
    ///   - text: As that of a consent.
    ///   - label: Stands before the field.
    /// - Throws: As ``confirm(_:_:within:)``; `userCancelled` if the person declines.
    package func secret(_ text: String, label: String) async throws(ProviderError) -> SecretBytes {
        guard case .answer(let secret) = try await ask(.secret(text, label: label), until: nil) else {
            throw Self.noAnswer
        }
        return secret
    }

    /// Ends all questions, also those that are asked later, and waits until their program has ended: three seconds at most.
    package func end() {
        let questions = state.withLock { state in
            state.hasEnded = true
            return state.open.values.map(\.self)
        }
        guard !questions.isEmpty else { return }
        for question in questions { question.cancel() }
        let isOver = DispatchSemaphore(value: 0)
        thread.submit { isOver.signal() }
        _ = isOver.wait(timeout: .now() + 3)
    }

    private enum Question: Sendable {
        case consent(String, Words, opens: Bool, problem: String?)
        case secret(String, label: String)
    }

    private enum Reply: Sendable {
        case answer(SecretBytes)
        case declined, timedOut
        /// Of the third button, or its word.
        case another
        case anotherWord
    }

    private func ask(
        _ question: Question, until end: ContinuousClock.Instant?
    ) async throws(ProviderError) -> Reply {
        let cancellation = try Cancellation()
        let hasEnded = state.withLock { state in
            state.open[ObjectIdentifier(cancellation)] = cancellation
            return state.hasEnded
        }
        defer { _ = state.withLock { $0.open.removeValue(forKey: ObjectIdentifier(cancellation)) } }
        if hasEnded { throw Self.noAnswer }
        let result = await withTaskCancellationHandler { () async -> Result<Reply, ProviderError> in
            do throws(ProviderError) {
                return .success(
                    try await thread.run { [self] () throws(ProviderError) in
                        let path = try path()
                        do throws(PinentryProcess.Failure) {
                            return try ask(path, question, until: end, cancellation)
                        } catch {
                            switch error {
                            case .timedOut: return .timedOut
                            case .cancelled: throw Self.noAnswer
                            case .broken(let reason): throw Self.failure(path, reason)
                            }
                        }
                    })
            } catch { return .failure(error) }
        } onCancel: {
            cancellation.cancel()
        }
        return try result.get()
    }

    /// Runs the program for one question. Blocks.
    private func ask(
        _ path: String, _ question: Question, until end: ContinuousClock.Instant?, _ cancellation: Cancellation
    ) throws(PinentryProcess.Failure) -> Reply {
        if let end, ContinuousClock.now >= end { throw .timedOut }
        if cancellation.isCancelled { throw .cancelled }
        Self.receiveJobControl()
        let terminal = usableTerminal
        let hasDisplay = ["DISPLAY", "WAYLAND_DISPLAY"].contains { self.environment[$0] != nil }
        let process = try PinentryProcess(
            path, environment, terminal: terminal, waitsForForeground: !hasDisplay,
            cancellation: cancellation.descriptor)
        var isFinished = false
        defer { process.end(isFinished: isFinished) }

        let setupEnd = ContinuousClock.now + Self.setupTime
        let until = end.map { min($0, setupEnd) } ?? setupEnd
        func answer(to command: String?) throws(PinentryProcess.Failure) -> PinentryAnswer {
            do throws(PinentryProcess.Failure) {
                guard let command else { return try process.greeting(until: until) }
                return try process.command(command, until: until)
            } catch {
                if case .timedOut = error, until == setupEnd { throw .broken("does not answer") }
                throw error
            }
        }
        func prepare(_ command: String?, isNeeded: Bool) throws(PinentryProcess.Failure) {
            switch try answer(to: command) {
            case .ok(let data) where data.isEmpty: return
            case .ok: throw .broken(Self.unwantedData)
            case .error(let error) where isNeeded: throw .broken(Self.refusal(error))
            case .error: return
            }
        }
        try prepare(nil, isNeeded: true)
        if let terminal, Self.isWord(terminal) {
            try prepare("OPTION ttyname=\(terminal)", isNeeded: false)
            if let kind = environment["TERM"], Self.isWord(kind) {
                try prepare("OPTION ttytype=\(kind)", isNeeded: false)
            }
        }
        if let locale = ["LC_ALL", "LC_CTYPE", "LANG"].lazy.compactMap({ self.environment[$0] }).first,
            Self.isWord(locale)
        {
            try prepare("OPTION lc-ctype=\(locale)", isNeeded: false)
        }
        try prepare("SETTITLE certprov", isNeeded: false)
        let flavor = try flavor { command throws(PinentryProcess.Failure) in try answer(to: command) }
        // Some only say that there was no answer.
        if terminal == nil, Self.needsTerminal(flavor) { throw .broken(Self.withoutScreen) }
        func set(_ command: String, _ text: String, atMost maximum: Int = 64) throws(PinentryProcess.Failure) {
            // The person must see the text; buttons may have other labels.
            try prepare("\(command) \(PinentryText.escaped(text, atMost: maximum))", isNeeded: command == "SETDESC")
        }
        var (command, typed, opens) = ("GETPIN", String?.none, false)
        switch question {
        case .secret(let text, let label):
            try set("SETDESC", text, atMost: PinentryText.maximum)
            try set("SETPROMPT", label)
        case .consent(let text, let words, let mayOpen, let problem):
            opens = mayOpen
            let isTyped = !flavor.isEmpty && flavor != "tty"
            try set(
                "SETDESC", isTyped || problem == nil ? text : "\(problem ?? "")\n\(text)", atMost: PinentryText.maximum)
            if isTyped {
                typed = words.typed
                try set("SETPROMPT", "Type \(words.typed)" + (opens ? ", or \(Self.openingWord) to see it:" : ":"))
                if let problem { try set("SETERROR", problem, atMost: 256) }
            } else {
                command = "CONFIRM"
                try set("SETOK", words.approve)
                if opens, case .error = try answer(to: "SETNOTOK Open the document") { opens = false }
            }
            try set("SETCANCEL", words.decline)
        }
        if let end {
            let seconds = max(1, (end - .now).components.seconds)
            try prepare("SETTIMEOUT \(seconds)", isNeeded: false)
        }
        process.dropInput()
        switch try process.command(command, until: end) {
        case .ok(let data):
            guard data.isEmpty || command == "GETPIN" else { throw .broken(Self.unwantedData) }
            isFinished = true
            guard let typed else { return .answer(data) }
            let word = data.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased().filter {
                !$0.isWhitespace
            }
            return word == typed ? .answer(data) : opens && word == Self.openingWord ? .another : .anotherWord
        case .error(let error):
            isFinished = true
            if error.isRefusal { return .declined }
            if error.isThirdButton { return opens ? .another : .declined }
            if error.isTimeout { return .timedOut }
            throw .broken(Self.refusal(error))
        }
    }

    /// The terminal to ask at, if it can be opened.
    private var usableTerminal: String? { terminal().flatMap { HeldTerminal.isTerminal($0) ? $0 : nil } }

    /// Returns the kind of a program of GnuPG, such as `gtk2`, or `gtk2:curses` for one that has found no display; empty for others.
    private func flavor(
        _ answer: (String) throws(PinentryProcess.Failure) -> PinentryAnswer
    ) throws(PinentryProcess.Failure) -> String {
        guard case .ok(let data) = try answer("GETINFO flavor") else { return "" }
        return data.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }

    private static func needsTerminal(_ flavor: String) -> Bool {
        ["tty", "curses"].contains(flavor.split(separator: ":").last)
    }

    private static let unwantedData = "gives data that was not asked for"

    private static func refusal(_ error: PinentryError) -> String {
        error.isWithoutScreen ? "\(withoutScreen) (error \(error.rawValue))" : "cannot ask (error \(error.rawValue))"
    }

    private static let withoutScreen = "has no terminal and no display to ask at"

    private static func isWord(_ text: String) -> Bool {
        text.utf8.count <= 128 && text.utf8.allSatisfy { (0x21...0x7e).contains($0) && $0 != UInt8(ascii: "%") }
    }

    /// A thread holds back what the one that has made it does. The signal that stops a process of the background must come.
    private static func receiveJobControl() {
        var signals = sigset_t()
        sigemptyset(&signals)
        for number in [SIGTTIN, SIGTTOU, SIGCONT] { sigaddset(&signals, number) }
        pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    }

    /// Checks that the program is installed.
    ///
    /// - Throws: `interactionRequired` for one that is missing or cannot be executed.
    package func requireProgram() throws(ProviderError) { _ = try path() }

    /// Starts the program, and checks that it has a terminal or a display to ask at. Shows nothing.
    ///
    /// - Throws: `interactionRequired` where it is missing, does not keep to the protocol, or has neither.
    package func requireScreen() async throws(ProviderError) {
        let cancellation = try Cancellation()
        try await thread.run { [self] () throws(ProviderError) in
            let path = try path()
            do throws(PinentryProcess.Failure) {
                let process = try PinentryProcess(
                    path, environment, terminal: nil, waitsForForeground: false, cancellation: cancellation.descriptor)
                var isFinished = false
                defer { process.end(isFinished: isFinished) }
                let end = ContinuousClock.now + Self.setupTime
                if case .error(let error) = try process.greeting(until: end) { throw .broken(Self.refusal(error)) }
                let flavor = try flavor { command throws(PinentryProcess.Failure) in
                    try process.command(command, until: end)
                }
                isFinished = true
                if Self.needsTerminal(flavor), usableTerminal == nil { throw .broken(Self.withoutScreen) }
            } catch {
                if case .broken(let reason) = error { throw Self.failure(path, reason) }
                throw Self.failure(path, "does not answer")
            }
        }
    }

    /// The path of the program.
    private func path() throws(ProviderError) -> String {
        let program = try program()
        if program.contains("/") {
            guard access(program, X_OK) == 0 else { throw Self.failure(program, Self.missing) }
            return program
        }
        let directories = (environment["PATH"] ?? "/usr/local/bin:/usr/bin:/bin")
            .split(separator: ":").filter { $0.hasPrefix("/") }
        guard
            let path = directories.lazy.map({ "\($0)/\(program)" as String }).first(where: { (path: String) in
                access(path, X_OK) == 0
            })
        else {
            throw Self.failure(program, Self.missing)
        }
        return path
    }

    private static let missing =
        "is not installed: install one, such as the package pinentry-curses, or name another one with Signing.prompt-program"

    private static func failure(_ program: String, _ reason: String) -> ProviderError {
        let step = reason == missing ? "" : "; check Signing.prompt-program, or use another prompt"
        return ProviderError(
            .interactionRequired,
            "The question cannot be asked: the program '\(program.withVisibleControls)' \(reason)\(step).")
    }

    private static let noAnswer = ProviderError(.userCancelled, "The question was not answered.")

    /// Tells a question that its answer is not wanted any more.
    private final class Cancellation: Sendable {
        /// Readable after the cancellation.
        let descriptor = certprov_event()

        init() throws(ProviderError) {
            guard descriptor >= 0 else {
                throw ProviderError(
                    .unavailable, "No question can be asked: \(errorText(errno)).")
            }
        }

        deinit { if descriptor >= 0 { close(descriptor) } }

        func cancel() {
            var one: UInt64 = 1
            _ = write(descriptor, &one, MemoryLayout<UInt64>.size)
        }

        var isCancelled: Bool {
            var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            return poll(&event, 1, 0) == 1
        }
    }
}
