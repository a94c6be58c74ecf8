import Foundation
import Glibc
import TestSupport
import Testing

/// Questions to a person at a terminal, which `script` plays.
@Suite struct TerminalTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private func atTerminal(
        _ command: String, answering question: String, with answer: String
    ) throws -> (status: Int32?, screen: String)? {
        try sandbox.atTerminal(command, asked: question) { try $0.type(answer + "\n") }
    }

    private func atTerminal(
        _ command: String, asked question: String, body: (PersonAtTerminal) throws -> Void
    ) throws -> (status: Int32?, screen: String)? { try sandbox.atTerminal(command, asked: question, body: body) }

    private func command(_ words: String) -> String {
        "\"$CERTPROV\" \(words) --provider pkcs12 --set path=\(Fixtures.path("ec.p12")) --set password-source=prompt"
    }

    @Test func asksForThePasswordWithoutShowingIt() throws {
        guard
            let (status, screen) = try atTerminal(
                command("fetch"), answering: "Password for \(Fixtures.path("ec.p12")): ", with: Fixtures.password)
        else { return }
        #expect(status == 0, "\(screen)")
        #expect(screen.contains("Password for") && screen.contains("CN=client"), "\(screen)")
        #expect(!screen.contains("Tr0ub4dor"), "\(screen)")
        #expect(try sandbox.entry().isEmpty == false)
    }

    @Test(
        "A pair that was made with --confirm asks, with its name and the SHA-256 of the data", arguments: [true, false])
    func aUseOfANamedPairIsConfirmed(isPermitted: Bool) throws {
        #expect(try sandbox.certprov("keys", "create", "my pair", "--type", "p256", "--confirm").status == 0)
        try sandbox.write("a text\n", to: "home/text")
        let digest = try sandbox.shell(#"sha256sum <"$HOME/text" | cut -c1-64"#).stdout.dropLast()
        guard
            let (status, screen) = try atTerminal(
                #""$CERTPROV" keys sign "my pair" "$HOME/text" >"$HOME/signature""#, answering: "[y/N]",
                with: isPermitted ? "y" : "n")
        else { return }
        #expect(screen.contains("'my pair'") && screen.contains(digest), "\(screen)")
        #expect(status == (isPermitted ? 0 : 77) && isPermitted != screen.contains("[userCancelled]"), "\(screen)")
        #expect(try contents(sandbox.path + "/home/signature").isEmpty != isPermitted)
        // Without a terminal.
        try sandbox.run(
            ["setsid", "--wait", BuiltCommand.path, "keys", "sign", "my pair", sandbox.path + "/home/text"]).expect(
                77, stdout: "", stderr: "[interactionRequired]")
        // No other command line drops it.
        try sandbox.certprov("keys", "create", "my pair", "--type", "p256").expect(73, stdout: "")
    }

    @Test func aWrongAnswerIsAWrongPasswordAndNotAskedForAgain() throws {
        guard
            let (status, screen) = try atTerminal(
                command("fetch -v -v"), answering: "Password for", with: "not-the-pw-7351")
        else { return }
        #expect(status == 77 && screen.contains("[wrongPassword]"), "\(screen)")
        #expect(screen.components(separatedBy: "Password for").count == 2, "\(screen)")
        #expect(!screen.contains("7351"), "\(screen)")
    }

    /// A signal that ends a question, and the keys that are typed for it; another process sends the ones without.
    struct Ending: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var number: Int32
        var typed: String?
    }

    @Test(arguments: [
        Ending(testDescription: "^C", number: SIGINT, typed: "half\u{3}"),
        Ending(testDescription: "^\\", number: SIGQUIT, typed: "half\u{1c}"),
        Ending(testDescription: "TERM", number: SIGTERM), Ending(testDescription: "HUP", number: SIGHUP),
    ])
    func theEchoComesBackWithoutAnAnswer(ending: Ending) throws {
        // The shell at the terminal survives, and looks at what the command leaves behind.
        let script = #"""
            trap : INT QUIT
            sh -c 'echo $$ >"$HOME/pid"; exec "$0" "$@"' \#(command("fetch"))
            echo "status $?"
            stty -a
            """#
        let result = try atTerminal(script, asked: "Password for") { person in
            if let typed = ending.typed { try person.type(typed) } else { try send(ending.number) }
        }
        guard let (_, screen) = result else { return }
        #expect(screen.contains("status \(128 + ending.number)"), "\(screen)")
        #expect(screen.contains(" echo ") && screen.contains(" -echonl "), "\(screen)")
        #expect(!screen.contains("half"), "\(screen)")
    }

    /// Sends a signal to the command, which has written down its process id.
    private func send(_ signal: Int32) throws {
        let pid = String(decoding: try contents(sandbox.path + "/home/pid"), as: UTF8.self).dropLast()
        try #require(kill(try #require(pid_t(pid)), signal) == 0)
    }

    /// A plugin that asks what `questions` says, each as `kind text`, without waiting for the answers or again after errors.
    /// It writes down what it gets.
    private func asker(_ questions: String, isPatient: Bool) throws -> String {
        let program = #"""
            #!/usr/bin/python3
            import json, sys
            QUESTIONS = [line.split(" ", 1) for line in "\#(questions)".split(",")]
            def send(message):
                print(json.dumps(message), flush=True)
            def asked(number, kind, text):
                send({"id": number, "request": "prompt", "params": {"for": obtain, "kind": kind, "text": text}})
            def note():
                answer = json.loads(sys.stdin.readline())
                open("\#(sandbox.path)/answers", "a").write(json.dumps(answer) + "\n")
                return answer
            for line in sys.stdin:
                message = json.loads(line)
                answer = {"id": message.get("id"), "result": {}}
                if message.get("request") == "hello":
                    provider = {"displayName": "Asker", "summary": "Asks.", "parameters": []}
                    answer["result"] = {"version": 1, "id": "asker", "provider": provider}
                elif message.get("request") == "obtain":
                    obtain = message["id"]
                    if "\#(isPatient)" == "true":
                        for number, question in enumerate(QUESTIONS):
                            asked(number, *question)
                            note()
                    else:
                        for number, question in enumerate(QUESTIONS):
                            asked(number, *question)
                        for _ in QUESTIONS:
                            note()
                    answer = {"id": obtain, "error": {"code": "notFound", "message": "Asked."}}
                if "id" in message:
                    send(answer)

            """#
        try sandbox.installPlugin("asker", program)
        return try sandbox.write(
            "PluginDirectory = \(sandbox.path)/plugins\nCertificateProvider = asker\n", to: "asker.properties")
    }

    /// The plugin would ask twenty times more.
    @Test(arguments: [
        Ending(testDescription: "^C", number: SIGINT, typed: "half\u{3}"),
        Ending(testDescription: "TERM", number: SIGTERM), Ending(testDescription: "HUP", number: SIGHUP),
    ])
    func aSignalEndsTheCommandAtAPluginsQuestion(ending: Ending) throws {
        let questions = Array(repeating: "secret Word", count: 20).joined(separator: ",")
        let file = try asker(questions, isPatient: true)
        let script = #"""
            trap : INT QUIT
            sh -c 'echo $$ >"$HOME/pid"; exec "$0" "$@"' "$CERTPROV" fetch --config \#(file)
            echo "status $?"
            stty -a
            """#
        let result = try atTerminal(script, asked: "Word: ") { person in
            if let typed = ending.typed { try person.type(typed) } else { try send(ending.number) }
        }
        guard let (_, screen) = result else { return }
        #expect(screen.contains("status \(128 + ending.number)"), "\(screen)")
        #expect(screen.components(separatedBy: "Word: ").count == 2 && !screen.contains("certprov:"), "\(screen)")
        #expect(screen.contains(" echo ") && !screen.contains("half"), "\(screen)")
    }

    /// Each answer is that to the question on the screen.
    @Test func twoQuestionsOfAPluginAreAskedOneAfterTheOther() throws {
        let file = try asker("secret Word,text Name", isPatient: false)
        let answers = ["Word": "Tr0ub4dor", "Name": "somebody"]
        let result = try atTerminal("\"$CERTPROV\" fetch --config \(file)", asked: ": ") { person in
            for times in 1...2 {
                // The first one stands behind the name of the plugin.
                person.sees(": ", 2 * times)
                let asked = person.screen().components(separatedBy: ": ")[2 * times - 1]
                try person.type((answers[asked] ?? "?") + "\n")
            }
        }
        guard let (status, screen) = result else { return }
        #expect(status == 66 && !screen.contains("Tr0ub4dor"), "\(screen)")
        let got = String(decoding: try contents(sandbox.path + "/answers"), as: UTF8.self)
        let word = Data("Tr0ub4dor".utf8).base64EncodedString()
        #expect(got.contains(#""secret": {"secret": "\#(word)"}"#) && got.contains(#""text": "somebody""#), "\(got)")
    }

    /// A signal that stops a command at a question, and the shell's actions before it continues it.
    struct Stop: Sendable, CustomTestStringConvertible {
        var testDescription: String
        /// Sent where nothing is typed.
        var number = SIGTSTP
        var typed: String?
        var before = ":"
        /// Whether the command could restore the terminal before it stopped.
        var isNoticed = true
    }

    @Test(arguments: [
        Stop(testDescription: "^Z", typed: "half\u{1a}"),
        Stop(testDescription: "TSTP"), Stop(testDescription: "STOP", number: SIGSTOP, isNoticed: false),
        Stop(testDescription: "^Z, bg", typed: "half\u{1a}", before: "bg"),
    ])
    func aQuestionIsAskedAgainAfterFg(stop: Stop) throws {
        // A shell with job control. Interactive ones restore the terminal themselves.
        let script = #"""
            set -m
            sh -c 'echo $$ >"$HOME/pid"; exec "$0" "$@"' \#(command("fetch"))
            echo "stopped $?"; stty -a; stty echo -echonl; \#(stop.before); fg
            echo "stopped $?"; stty -a; stty echo -echonl; \#(stop.before); fg
            echo "status $?"; stty -a
            """#
        let result = try atTerminal(script, asked: "Password for") { person in
            for times in 1...2 {
                if let typed = stop.typed { try person.type(typed) } else { try send(stop.number) }
                person.sees("stopped ", times)
                person.sees("Password for", times + 1)
            }
            try person.type(Fixtures.password + "\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 0 && screen.contains("status 0"), "\(screen)")
        #expect(screen.components(separatedBy: "Password for").count == 4, "\(screen)")
        #expect(!screen.contains("Tr0ub4dor") && !screen.contains("half"), "\(screen)")
        let shown = screen.components(separatedBy: " echo ").count - 1
        #expect(shown == (stop.isNoticed ? 3 : 1), "\(screen)")
    }

    /// The kernel does not stop a process that no shell could continue (POSIX, orphaned process group).
    @Test func aStopThatDoesNotComeAboutShowsNothing() throws {
        let result = try atTerminal("exec " + command("fetch"), asked: "Password for") { person in
            try person.type("half\u{1a}")
            person.sees("Password for", 2)
            try person.type(Fixtures.password + "\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 0 && !screen.contains("Tr0ub4dor") && !screen.contains("half"), "\(screen)")
    }

    @Test func aConfirmationIsAskedForAgainAfterFg() throws {
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        let script = "set -m; \(command("delete")); echo stopped; fg"
        let result = try atTerminal(script, asked: "[y/N]") { person in
            try person.type("\u{1a}")
            person.sees("[y/N]", 2)
            try person.type("y\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 0 && screen.contains("stopped"), "\(screen)")
    }

    @Test("What was typed before a question does not answer it") func typedBeforeTheQuestion() throws {
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        let script = #"echo before; until test -e "$HOME/typed"; do sleep 0.01; done; \#(command("delete"))"#
        let result = try atTerminal(script, asked: "before") { person in
            try person.type("y\n")
            // The terminal has it.
            person.sees("y\r\n", 1)
            try sandbox.write("", to: "home/typed")
            person.sees("[y/N] ", 1)
            try person.type("n\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 77 && screen.contains("[userCancelled]"), "\(screen)")
        #expect(try sandbox.entry().isEmpty == false)
    }

    @Test func aFetchThatCannotAskNamesNoOptionItDoesNotHave() throws {
        let arguments = ["fetch"] + adHoc(Fixtures.path("ec.p12"), password: "prompt")
        let output = try sandbox.certprov(arguments).expect(77, stderr: "a source of the secret")
        #expect(!output.stderr.contains("--yes"), "\(output)")
    }

    /// Without a parameter that says how to know the server.
    private func enrolment(_ server: ESTServer) throws -> String {
        try sandbox.write(ESTServer.password.utf8, to: "password")
        let file = try sandbox.write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)
            CertificateProvider.mdm.username = \(ESTServer.user)
            CertificateProvider.mdm.password-source = file:\(sandbox.path)/password
            CertificateProvider.mdm.subject = CN=host,O=Example
            CertificateProvider.mdm.timeout = 600
            """.utf8, to: "client.properties")
        return "\"$CERTPROV\" fetch --force --config \(file)"
    }

    @Test func aServersAuthorityIsConfirmedOnceAndAWaitIsCountedDown() async throws {
        let server = try await ESTServer.start("--auth", "basic", "--pending", "1", "--retry-after", "5")
        let command = try enrolment(server)
        guard let (status, screen) = try atTerminal(command, answering: "told you? [y/N]", with: "y") else { return }
        #expect(status == 0, "\(screen)")
        #expect(screen.contains("SHA-256 fingerprint") && screen.contains("CN=Root CA"), "\(screen)")
        // A second that a busy host sleeps through is not shown.
        let shown = (1...5).filter { screen.contains("\r") && screen.contains("to decide (\($0) s)\u{1b}[K\r") }
        #expect(shown.count >= 2 && screen.contains(" s)\u{1b}[K\r\u{1b}[K"), "\(screen)")
        // No user is there the next time.
        let again = try sandbox.shell(command)
        #expect(again.status == 0 && !again.stderr.contains("to decide"), "\(again)")
    }

    @Test func anAuthorityThatIsNotConfirmedGetsNothing() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let command = try enrolment(server)
        guard let (status, screen) = try atTerminal(command, answering: "[y/N]", with: "n") else { return }
        #expect(status == 77 && screen.contains("[userCancelled]"), "\(screen)")
        try sandbox.shell(command).expect(78, stderr: "ca-fingerprint")
        #expect(server.issued == 0)
    }

    @Test(arguments: [
        ("y", true), ("yes", true), ("Y", true), ("YES", true), ("n", false), ("", false), ("yesss", false),
    ])
    func asksBeforeItDeletes(answer: String, isDeleted: Bool) throws {
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        guard let (status, screen) = try atTerminal(command("delete"), answering: "[y/N]", with: answer) else { return }
        #expect(status == (isDeleted ? 0 : 77), "\(screen)")
        #expect(isDeleted || screen.contains("[userCancelled]"), "\(screen)")
        // Here, typed text is seen: the terminal does echo.
        #expect(answer.isEmpty || screen.contains("[y/N] \(answer)"), "\(screen)")
        let left = try FileManager.default.contentsOfDirectory(atPath: sandbox.store + "/identities/pkcs12")
        #expect(left.isEmpty == isDeleted)
    }
}
