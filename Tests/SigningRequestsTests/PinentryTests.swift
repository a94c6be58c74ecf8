import CertificateProviding
import Foundation
import Glibc
import SigningRequests
import Synchronization
import TestSupport
import Testing

/// Programs that keep to the protocol, or do not.
@Suite(.timeLimit(.minutes(30))) struct PinentryTests {
    private let directory: TemporaryDirectory
    private let environment = ["PATH": "/usr/bin:/bin", "TERM": "xterm", "P12_PASSWORD": "s3cret", "LC_ALL": "C.UTF-8"]

    init() throws { directory = try TemporaryDirectory() }

    private func pinentry(_ program: String, at terminal: TestTerminal? = nil) -> Pinentry {
        Pinentry(environment: environment, terminal: { terminal?.name }) { () throws(ProviderError) in program }
    }

    /// Installs a program that answers `OK`, but does `script` at the question.
    private func program(_ script: String, greeting: String = "echo OK Pleased") throws -> String {
        try directory.install(
            "pinentry",
            """
            #!/bin/sh
            echo $$ >>"$0.pids"
            \(greeting)
            while read -r line; do
                echo "$line" >>"$0.lines"
                case "$line" in
                CONFIRM | GETPIN) \(script) ;;
                BYE) exit 0 ;;
                *) echo OK ;;
                esac
            done

            """.utf8)
    }

    private func confirm(
        _ pinentry: Pinentry, within time: Duration? = nil
    ) async throws(ProviderError) -> ApprovalAnswer {
        try await pinentry.confirm(
            "One\n100 %", .init(approve: "Approve", decline: "Decline", typed: "sign"), within: time)
    }

    private func contents(_ name: String) -> String {
        (try? String(contentsOfFile: directory[name], encoding: .utf8)) ?? ""
    }

    /// Expects that no process is left of those that have written their numbers down.
    ///
    /// - Parameter isCertain: Whether one has had the time to.
    private func expectEnd(isCertain: Bool = true) {
        let pids = contents("pinentry.pids").split(separator: "\n").compactMap { pid_t($0) }
        #expect(!pids.isEmpty || !isCertain)
        for pid in pids { while !hasEnded(pid) { usleep(1000) } }
    }

    /// Whether a process has ended. One whose parent has ended too may wait for another one to notice.
    private func hasEnded(_ pid: pid_t) -> Bool {
        guard let status = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8) else { return true }
        return status.split(separator: ")").last?.hasPrefix(" Z") == true
    }

    @Test("OK approves; the program gets the whole text on one line") func okApproves() async throws {
        let program = try program("echo OK")
        #expect(try await confirm(pinentry(program), within: .seconds(300)) == .approved)
        let lines = contents("pinentry.lines").split(separator: "\n")
        // The rest of the time, in whole seconds.
        let time = try #require(lines.first { $0.hasPrefix("SETTIMEOUT ") })
        #expect((1..<300).contains(Int(time.dropFirst(11)) ?? 0), "\(time)")
        #expect(
            lines == [
                "OPTION lc-ctype=C.UTF-8", "SETTITLE certprov", "GETINFO flavor", "SETDESC One%0A100 %25",
                "SETOK Approve",
                "SETCANCEL Decline", time, "CONFIRM", "BYE",
            ])
        expectEnd()
    }

    @Test(
        "The codes of a person who declines, or does not answer",
        arguments: [
            (83_886_179, .declined), (83_886_278, .declined), (83_886_142, .timedOut),
            // The third button.
            (83_886_194, .declined),
        ] as [(Int, ApprovalAnswer)])
    func codes(code: Int, answer: ApprovalAnswer) async throws {
        let program = try program("echo S BUTTON_INFO close; echo ERR \(code) words")
        #expect(try await confirm(pinentry(program)) == answer)
        let error = await #expect(throws: ProviderError.self) {
            try await pinentry(program).secret("PIN", label: "PIN:")
        }
        #expect(error?.code == .userCancelled)
        expectEnd()
    }

    struct Fault: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var script = "echo OK"
        var greeting = "echo OK Pleased"
        /// Part of the message; `nil` for a program that must be ended at the deadline.
        var reason: String?
    }

    @Test(
        "No fault of the program approves",
        arguments: [
            Fault(testDescription: "error", script: "echo ERR 83886355 Unknown command", reason: "83886355"),
            Fault(testDescription: "no terminal", script: "echo ERR 83918950 No tty", reason: "no terminal"),
            Fault(testDescription: "no such terminal", script: "echo ERR 83918929 No tty", reason: "no terminal"),
            Fault(testDescription: "killed", script: "kill -9 $$", reason: "ended without an answer"),
            Fault(testDescription: "silent exit", script: "exit 0", reason: "ended without an answer"),
            Fault(testDescription: "exit at the start", greeting: "exit 0", reason: "ended without an answer"),
            Fault(testDescription: "exit after the greeting", greeting: "echo OK; exit 0", reason: "ended without"),
            // Without the x, it might begin as a remark does.
            Fault(
                testDescription: "garbage", script: "printf x; head -c 300 /dev/urandom; echo",
                reason: "cannot be used"),
            Fault(testDescription: "another protocol", script: "echo yes", reason: "cannot be used"),
            Fault(testDescription: "half an answer", script: "printf OK; exit 0", reason: "ended without an answer"),
            Fault(
                testDescription: "long line", script: "head -c 100000 /dev/zero | tr '\\0' x; echo; echo OK",
                reason: "too long"),
            Fault(testDescription: "a flood", script: "yes S x", reason: "too many lines"),
            Fault(testDescription: "two answers", script: "printf 'OK\\nERR 99\\n'", reason: "before it is asked"),
            Fault(testDescription: "data with the consent", script: "echo D yes; echo OK", reason: "not asked for"),
            Fault(
                testDescription: "answers before", greeting: "printf 'OK\\nOK\\nOK\\nOK\\nOK\\nOK\\nOK\\nOK\\n'",
                reason: "before it is asked"),
            Fault(testDescription: "an error as greeting", greeting: "echo ERR 83918950", reason: "no terminal"),
            Fault(testDescription: "hangs", script: "sleep 1000"),
            Fault(testDescription: "hangs from the start", greeting: "sleep 1000"),
            Fault(testDescription: "says nothing but the greeting", greeting: "echo OK; cat >/dev/null"),
            Fault(
                testDescription: "hangs, and ignores SIGTERM", script: "sleep 1000", greeting: "trap '' TERM; echo OK"),
            Fault(
                testDescription: "hangs with a child",
                script: #"sh -c 'trap "" TERM; echo $$ >>"$0.pids"; sleep 1000' "$0" & wait"#),
            Fault(testDescription: "goes on with remarks", script: "while sleep 0.02; do echo S x; done"),
        ])
    func faultsApproveNothing(fault: Fault) async throws {
        let program = try program(fault.script, greeting: fault.greeting)
        var answer: ApprovalAnswer?
        var failure: ProviderError?
        do throws(ProviderError) {
            answer = try await confirm(pinentry(program), within: .seconds(fault.reason == nil ? 1 : 300))
        } catch { failure = error }
        if let reason = fault.reason {
            #expect(
                failure?.code == .interactionRequired && failure?.message.contains(reason) == true, "\(failure as Any)")
            #expect(
                failure?.message.contains(program) == true
                    && failure?.message.contains("Signing.prompt-program") == true)
        } else {
            // The last one reaches the limit of lines at the same time.
            #expect(answer == .timedOut || failure?.message.contains("too many lines") == true, "\(failure as Any)")
        }
        expectEnd(isCertain: fault.reason != nil)
    }

    /// A program of GnuPG, which says its name.
    private func program(named flavor: String, _ script: String) throws -> String {
        try directory.install(
            "pinentry",
            """
            #!/bin/sh
            echo OK
            while read -r line; do
                echo "$line" >>"$0.lines"
                case "$line" in
                "GETINFO flavor") echo "D \(flavor)"; echo OK ;;
                CONFIRM | GETPIN) \(script) ;;
                BYE) exit 0 ;;
                *) echo OK ;;
                esac
            done

            """.utf8)
    }

    @Test(
        "Where a bare Enter approves, the person types a word; buttons keep their meaning",
        arguments: ["curses", "gtk2", "gtk2:curses", "gnome3", "qt"])
    func typedWord(flavor: String) async throws {
        let answers: [(String, ApprovalAnswer)] = [
            ("echo D sign; echo OK", .approved), ("echo D ' Sign'; echo OK", .approved), ("echo OK", .declined),
            ("echo D y; echo OK", .declined), ("echo D signed; echo OK", .declined),
            ("echo D open; echo OK", .declined),
            ("echo ERR 83886179", .declined), ("echo ERR 83886142", .timedOut),
        ]
        let terminal = try TestTerminal()
        for (script, answer) in answers {
            let program = try program(named: flavor, script)
            #expect(try await confirm(pinentry(program, at: terminal), within: .seconds(300)) == answer, "\(script)")
        }
        let lines = contents("pinentry.lines")
        #expect(lines.contains("SETPROMPT Type sign:\n") && lines.contains("SETCANCEL Decline\n"), "\(lines)")
        #expect(!lines.contains("CONFIRM") && !lines.contains("SETOK"))
        #expect(lines.contains("SETERROR This was not one of the words."))
    }

    @Test("A word that is not one is asked for again") func anotherWord() async throws {
        let program = try program(
            named: "curses", #"if test -e "$0.asked"; then echo D sign; else touch "$0.asked"; echo D y; fi; echo OK"#)
        #expect(try await confirm(pinentry(program, at: TestTerminal()), within: .seconds(300)) == .approved)
    }

    @Test(
        "A program that has neither terminal nor display is told from a person who declines, before the question",
        arguments: ["tty", "curses", "gtk2:curses"], [nil, "/dev/null", "/dev/nosuch"])
    func noScreen(flavor: String, terminal: String?) async throws {
        // As pinentry-tty answers then.
        let program = try program(named: flavor, "echo ERR 83886194 Not confirmed")
        let pinentry = Pinentry(environment: environment, terminal: { terminal }) { () throws(ProviderError) in program
        }
        let errors = [
            await #expect(throws: ProviderError.self) { try await confirm(pinentry) },
            await #expect(throws: ProviderError.self) { try await pinentry.secret("PIN", label: "PIN:") },
            await #expect(throws: ProviderError.self) { try await pinentry.requireScreen() },
        ]
        for error in errors {
            #expect(
                error?.code == .interactionRequired && error?.message.contains("no terminal") == true,
                "\(error as Any)")
        }
        let lines = contents("pinentry.lines")
        #expect(!lines.contains("CONFIRM") && !lines.contains("GETPIN"), "\(lines)")
    }

    @Test("A program with a display, and one that does not say its kind, may ask", arguments: ["gtk2", "qt", ""])
    func screen(flavor: String) async throws {
        try await pinentry(try program(named: flavor, "echo OK")).requireScreen()
        #expect(!contents("pinentry.lines").contains("SETDESC"))
    }

    @Test(
        "A program that cannot be used is known before a question",
        arguments: [("exit 0", "ended without"), ("echo ERR 83918950", "no terminal"), ("echo yes", "cannot be used")])
    func unusable(greeting: String, reason: String) async throws {
        let pinentry = pinentry(try program("echo OK", greeting: greeting))
        try pinentry.requireProgram()
        let error = await #expect(throws: ProviderError.self) { try await pinentry.requireScreen() }
        #expect(
            error?.code == .interactionRequired && error?.message.contains(reason) == true, "\(error as Any)")
    }

    @Test("Where a program takes no button for the document, not confirmed is declined, and nothing is opened")
    func noThirdButton() async throws {
        let program = try directory.install(
            "pinentry",
            """
            #!/bin/sh
            echo OK
            while read -r line; do
                case $line in SETNOTOK*) echo ERR 83886355;; CONFIRM) echo ERR 83886194;; *) echo OK;; esac
            done

            """.utf8)
        let opened = Mutex(false)
        let answer = try await pinentry(program).confirm(
            "Text", .init(approve: "Approve", decline: "Decline", typed: "sign"), within: .seconds(300)
        ) {
            opened.withLock { $0 = true }
            return nil
        }
        #expect(answer == .declined && !opened.withLock(\.self))
    }

    @Test(
        "A button or a word opens the document, as often as the person likes, and the question is asked again",
        arguments: [true, false])
    func opensTheDocument(hasFlavor: Bool) async throws {
        let count = #"echo x >>"$0.asked"; if test "$(wc -l <"$0.asked")" -gt 2"#
        let program =
            hasFlavor
            ? try program(named: "curses", "\(count); then echo D sign; else echo D open; fi; echo OK")
            : try program("\(count); then echo OK; else echo ERR 83886194; fi")
        let opened = Mutex(0)
        let answer = try await pinentry(program, at: TestTerminal()).confirm(
            "Text", .init(approve: "Approve", decline: "Decline", typed: "sign"), within: .seconds(300)
        ) {
            let count = opened.withLock { count in
                count += 1
                return count
            }
            return count == 1 ? "It cannot be opened." : nil
        }
        #expect(answer == .approved && opened.withLock(\.self) == 2)
        let lines = contents("pinentry.lines")
        let expected =
            hasFlavor
            ? ["SETPROMPT Type sign, or open to see it:", "SETERROR It cannot be opened."]
            : ["SETNOTOK Open the document", "SETDESC It cannot be opened.%0AText"]
        for line in expected { #expect(lines.contains(line + "\n"), "\(lines)") }
    }

    @Test("A text that the program does not take is not asked about") func theTextMustBeShown() async throws {
        let program = try directory.install(
            "pinentry",
            "#!/bin/sh\necho OK\nwhile read -r line; do case $line in SETDESC*) echo ERR 1;; *) echo OK;; esac; done\n"
                .utf8)
        let error = await #expect(throws: ProviderError.self) { try await confirm(pinentry(program)) }
        #expect(error?.code == .interactionRequired)
    }

    @Test("An option that the program does not know is no fault") func optionsAreOptional() async throws {
        let program = try directory.install(
            "pinentry",
            """
            #!/bin/sh
            echo OK
            while read -r line; do
                case $line in OPTION* | SETT* | SETOK* | SETCANCEL*) echo ERR 83886254;; *) echo OK;; esac
            done

            """.utf8)
        #expect(try await confirm(pinentry(program), within: .seconds(60)) == .approved)
    }

    @Test func aSecretIsWhatTheProgramSays() async throws {
        let program = try program("echo 'D 12%2534 '; echo OK")
        #expect(try await pinentry(program).secret("PIN of a token", label: "PIN:") == SecretBytes(utf8: "12%34 "))
        #expect(contents("pinentry.lines").contains("SETDESC PIN of a token\nSETPROMPT PIN:\nGETPIN\n"))
        expectEnd()
    }

    @Test(
        "A program that is missing is named, with the next step",
        arguments: ["nosuch-pinentry", "/nosuch/pinentry", "text", "script"])
    func missing(name: String) async throws {
        var name = name
        if name == "text" { name = try directory.write("text".utf8, to: "text") }
        if name == "script" { name = try directory.install("script", "echo OK\n".utf8) }
        let error = await #expect(throws: ProviderError.self) { try await confirm(pinentry(name)) }
        let look = await #expect(throws: ProviderError.self) { try await pinentry(name).requireScreen() }
        #expect(look?.message == error?.message)
        #expect(error?.code == .interactionRequired, "\(error as Any)")
        #expect(
            error?.message.contains("'\(name)'") == true && error?.message.contains("Signing.prompt-program") == true)
    }

    @Test("A question that is cancelled ends the program", arguments: [true, false])
    func cancellationEndsTheProgram(byTask: Bool) async throws {
        let pinentry = pinentry(try program("echo $$ >\"$0.asked\"; sleep 1000"))
        let asking = Task { () -> ProviderError.Code? in
            do throws(ProviderError) {
                _ = try await confirm(pinentry)
                return nil
            } catch { return error.code }
        }
        while contents("pinentry.asked").isEmpty { try await Task.sleep(for: .milliseconds(2)) }
        if byTask {
            asking.cancel()
        } else {
            await withCheckedContinuation { continuation in
                BlockingExecutor.threads(maximum: 1).submit {
                    pinentry.end()
                    continuation.resume()
                }
            }
            expectEnd()
            let later = await #expect(throws: ProviderError.self) { try await confirm(pinentry) }
            #expect(later?.code == .userCancelled)
        }
        #expect(await asking.value == .userCancelled)
        expectEnd()
    }

    @Test("One question at a time") func oneAtATime() async throws {
        let pinentry = pinentry(
            try program("mkdir \"$0.asking\" || echo twice >\"$0.twice\"; sleep 0.01; rmdir \"$0.asking\"; echo OK"))
        await withTaskGroup { group in
            for _ in 0..<8 { group.addTask { (try? await confirm(pinentry)) == .approved } }
            for await isApproved in group { #expect(isApproved) }
        }
        #expect(contents("pinentry.twice").isEmpty && contents("pinentry.pids").split(separator: "\n").count == 8)
        expectEnd()
    }

    @Test("The program gets no arguments, none of our descriptors, and no variable that may be a secret")
    func theProgramGetsNothingElse() async throws {
        let program = try program(
            """
            tr '\\0' '\\n' </proc/$$/environ >"$0.environment"; tr '\\0' ' ' </proc/$$/cmdline >"$0.arguments"
            for file in /proc/$$/fd/*; do readlink "$file"; done >"$0.files"; echo OK
            """)
        #expect(try await confirm(pinentry(program)) == .approved)
        #expect(
            Set(contents("pinentry.environment").split(separator: "\n")) == [
                "PATH=/usr/bin:/bin", "TERM=xterm", "LC_ALL=C.UTF-8",
            ])
        #expect(contents("pinentry.arguments") == "/bin/sh \(program) ")
        // The shell has the script open, and the file that the loop writes.
        let files = contents("pinentry.files").split(separator: "\n").filter { !$0.hasPrefix(directory.path) }
        #expect(files.filter { $0.hasPrefix("pipe:") }.count == 2 && files.count <= 4, "\(files)")
        #expect(files.allSatisfy { $0.hasPrefix("pipe:") || $0 == "/dev/null" }, "\(files)")
    }

    @Test func thePromptShowsTheQuestion() async throws {
        let prompt = PinentryPrompt(pinentry(try program("echo OK")))
        #expect(prompt.name == "pinentry")
        #expect(try await prompt.answer(to: .example(), within: .seconds(60)) == .approved)
        let text = PinentryText.escaped(SigningQuestion.example().text(fitting: 900, PinentryText.count))
        #expect(contents("pinentry.lines").split(separator: "\n").contains("SETDESC \(text)"))
    }
}

/// A pseudo-terminal, with a person at it.
final class TestTerminal: Sendable {
    let name: String
    private let keyboard: Int32
    /// Held open: otherwise the terminal ends when the program closes it.
    private let own: Int32
    private let thread = BlockingExecutor.threads(maximum: 1)

    init() throws {
        keyboard = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
        var (number, unlocked) = (UInt32(0), Int32(0))
        // Swift has neither ptsname(3) nor TIOCGPTN and TIOCSPTLCK.
        try #require(keyboard >= 0 && ioctl(keyboard, 0x8004_5430, &number) == 0)
        try #require(ioctl(keyboard, 0x4004_5431, &unlocked) == 0)
        name = "/dev/pts/\(number)"
        own = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
        try #require(own >= 0)
        var size = winsize(ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0)
        try #require(ioctl(own, UInt(TIOCSWINSZ), &size) == 0)
    }

    deinit {
        close(own)
        close(keyboard)
    }

    /// Waits until a text is on the screen, and returns all that is there by then.
    func wait(for text: String) async throws -> String {
        try await thread.run { [keyboard] () throws(ProviderError) in
            var seen: [UInt8] = []
            while !String(decoding: seen, as: UTF8.self).contains(text) {
                var waiting = pollfd(fd: keyboard, events: Int16(POLLIN), revents: 0)
                var buffer = [UInt8](repeating: 0, count: 4096)
                guard poll(&waiting, 1, 300_000) == 1, case let count = read(keyboard, &buffer, 4096), count > 0 else {
                    throw ProviderError(
                        .timedOut, "'\(text)' is not on the screen: \(String(decoding: seen, as: UTF8.self))")
                }
                seen += buffer.prefix(count)
            }
            return String(decoding: seen, as: UTF8.self)
        }
    }

    func type(_ text: String) { _ = text.withCString { write(keyboard, $0, strlen($0)) } }

    /// Whether typed characters are shown, and read by the line.
    var isUsual: Bool {
        var settings = termios()
        guard tcgetattr(own, &settings) == 0 else { return false }
        return settings.c_lflag & UInt32(ECHO) != 0 && settings.c_lflag & UInt32(ICANON) != 0
    }
}

/// The pinentries of Debian, at a pseudo-terminal.
@Suite(.timeLimit(.minutes(30))) struct RealPinentryTests {
    enum Program: String, CaseIterable, Sendable {
        case tty = "/usr/bin/pinentry-tty"
        case curses = "/usr/bin/pinentry-curses"

        static let installed = allCases.filter { access($0.rawValue, X_OK) == 0 }
        /// The end of the screen when it waits for an answer.
        var question: String { self == .tty ? "[ado]? " : "<Decline>" }
        var approval: String { self == .tty ? "a" : "sign\r" }
        var refusal: String { self == .tty ? "d" : "\t\t\r" }
        var secretQuestion: String { self == .tty ? "Secret: " : "<OK>" }
    }

    private let terminal: TestTerminal
    private let directory: TemporaryDirectory

    init() throws { (terminal, directory) = (try TestTerminal(), try TemporaryDirectory()) }

    private func pinentry(_ program: String, hasTerminal: Bool = true) -> Pinentry {
        Pinentry(
            environment: ["PATH": "/usr/bin:/bin", "TERM": "xterm", "LC_ALL": "C.UTF-8"],
            terminal: { [terminal] in hasTerminal ? terminal.name : nil }
        ) { () throws(ProviderError) in program }
    }

    private func answer(
        _ program: Program, within time: Duration = .seconds(300), _ question: SigningQuestion = .example(),
        _ body: (String) async throws -> Void
    ) async throws -> Result<ApprovalAnswer, ProviderError> {
        // Writes down its number, and becomes the program.
        let wrapper = try directory.install(
            "pinentry", "#!/bin/sh\necho $$ >\"$0.pid\"\nexec \(program.rawValue)\n".utf8)
        let prompt = PinentryPrompt(pinentry(wrapper))
        async let answer = Task { () -> Result<ApprovalAnswer, ProviderError> in
            do throws(ProviderError) {
                return .success(try await prompt.answer(to: question, within: time))
            } catch { return .failure(error) }
        }.value
        try await body(try await terminal.wait(for: program.question))
        let result = await answer
        let isGone = kill(try pid(), 0) != 0 && errno == ESRCH
        #expect(terminal.isUsual && isGone)
        return result
    }

    private func pid() throws -> pid_t {
        let text = try String(contentsOfFile: directory["pinentry.pid"], encoding: .utf8)
        return try #require(pid_t(text.dropLast()))
    }

    @Test(arguments: Program.installed) func approves(program: Program) async throws {
        let result = try await answer(program) { screen in
            let button = program == .tty ? "Approve" : "Type sign, or open to see it:"
            for part in ["Payroll", "a PDF of 12 kB", "0123456789abcdef", "unverified", "HR portal", button, "Decline"]
            {
                // Attributes of the screen stand between the letters of a button.
                #expect(screen.contains(part) || screen.contains(part.dropFirst()), "\(part): \(screen)")
            }
            terminal.type(program.approval)
        }
        #expect(try result.get() == .approved)
    }

    @Test(arguments: Program.installed) func declines(program: Program) async throws {
        let result = try await answer(program) { _ in terminal.type(program.refusal) }
        #expect(try result.get() == .declined)
    }

    @Test("What was typed before the question, and a bare Enter, approve nothing", arguments: Program.installed)
    func typedBefore(program: Program) async throws {
        terminal.type("a\ry\rsign\r")
        let result = try await answer(program) { _ in
            if program == .curses {
                for _ in 1...2 {
                    terminal.type("\r")
                    _ = try await terminal.wait(for: "not one of the words")
                }
            }
            terminal.type(program.refusal)
        }
        #expect(try result.get() == .declined)
    }

    @Test(arguments: Program.installed) func timesOut(program: Program) async throws {
        // Long enough for the question to be on the screen.
        let result = try await answer(program, within: .seconds(20)) { _ in }
        #expect(try result.get() == .timedOut)
    }

    @Test(arguments: Program.installed) func killedApprovesNothing(program: Program) async throws {
        let result = try await answer(program) { _ in try #require(kill(try pid(), SIGKILL) == 0) }
        let error = #expect(throws: ProviderError.self) { try result.get() }
        #expect(error?.code == .interactionRequired && error?.message.contains("ended without") == true)
    }

    @Test("The largest question fits on a terminal of 80 times 24", arguments: Program.installed)
    func theLargestQuestionFits(program: Program) async throws {
        let long = String(repeating: "wide \u{e4} ", count: 40)
        let question = SigningQuestion.example {
            ($0.clientName, $0.serviceName, $0.documentName, $0.requestID) = (long, long, long, long)
            ($0.signer, $0.peer) = (long, long)
        }
        let result = try await answer(program, question) { screen in
            #expect(screen.contains("wide") && screen.contains("0123456789abcdef"), "\(screen)")
            terminal.type(program.approval)
        }
        #expect(try result.get() == .approved)
    }

    @Test(arguments: Program.installed) func withoutATerminalNothingIsApproved(program: Program) async throws {
        let pinentry = pinentry(program.rawValue, hasTerminal: false)
        let errors = [
            await #expect(throws: ProviderError.self) {
                try await PinentryPrompt(pinentry).answer(to: .example(), within: .seconds(300))
            },
            await #expect(throws: ProviderError.self) { try await pinentry.secret("PIN", label: "PIN:") },
            await #expect(throws: ProviderError.self) { try await pinentry.requireScreen() },
        ]
        for error in errors {
            #expect(
                error?.code == .interactionRequired && error?.message.contains("no terminal") == true,
                "\(error as Any)")
        }
        try await self.pinentry(program.rawValue).requireScreen()
    }

    @Test(arguments: Program.installed) func takesASecret(program: Program) async throws {
        let pinentry = pinentry(program.rawValue)
        async let secret = pinentry.secret("certprov asks:\nPIN of 100 %", label: "Secret:")
        let screen = try await terminal.wait(for: program.secretQuestion)
        #expect(screen.contains("PIN of 100 %"), "\(screen)")
        terminal.type("12 %4\u{e4}" + (program == .tty ? "\n" : "\r"))
        #expect(try await secret == SecretBytes(utf8: "12 %4\u{e4}"))
        #expect(terminal.isUsual)
    }
}
