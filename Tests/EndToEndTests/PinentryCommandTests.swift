import Foundation
import Glibc
import TestSupport
import Testing

/// Questions by a pinentry: `--prompt pinentry`. One after the other: tools that make the token of one have its PIN in their arguments, which
/// others watch.
@Suite(.serialized, .timeLimit(.minutes(20))) struct PinentryCommandTests {
    private static let pin = "pinentry-PIN-58"
    private static let library = SoftToken.library
    private static let isInstalled = ["tty", "curses"].allSatisfy { access("/usr/bin/pinentry-\($0)", X_OK) == 0 }
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        mkdir(sandbox.path + "/bin", 0o700)
    }

    /// Makes a token with the fixture `ec`.
    private func makeToken() throws {
        _ = try SoftToken(in: sandbox, "service", pin: Self.pin)
        try sandbox.shell(
            """
            set -eu; fixtures=$1; pin=$2; library=$3
            softhsm2-util --import $fixtures/ec.key --token service --label ec --id 01 --pin "$pin"
            openssl x509 -in $fixtures/ec.pem -outform der -out "$HOME/ec.der"
            openssl x509 -in $fixtures/ec.pem -noout -pubkey >"$HOME/ec.pub"
            pkcs11-tool --module $library --token-label service --login --pin "$pin" \\
                --write-object "$HOME/ec.der" --type cert --label ec --id 01
            """, Fixtures.path(""), Self.pin, Self.library, with: variables
        ).require()
    }

    /// With a `pinentry` of the test before that of the host.
    private var variables: [String: String] {
        [
            "SOFTHSM2_CONF": sandbox.path + "/softhsm2.conf", "TERM": "xterm",
            "PATH": sandbox.path + "/bin:" + (sandbox.environment["PATH"] ?? ""),
        ]
    }

    /// Puts a program where the command looks for `pinentry`.
    private func install(_ script: String) throws {
        try sandbox.install("#!/bin/sh\necho $$ >\"$HOME/pinentry.pid\"\n\(script)\n", to: "bin/pinentry")
    }

    private var token: String {
        "--uri 'pkcs11:token=service;object=ec' --set module-path=\(Self.library) --set pin-source=prompt"
    }

    private func text(_ name: String) -> String {
        (try? contents(sandbox.path + "/" + name)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    /// Runs a command while another process looks for the PIN in the arguments and the environments of all processes.
    private func watched(_ command: String) -> String {
        #"""
        ( while [ ! -e "$HOME/over" ]; do
            for file in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do tr '\0' '\n' <"$file"; done
            echo one look >>"$HOME/looks"
            sleep 0.02
        done 2>/dev/null | grep -aF -f "$HOME/../pin" >"$HOME/found" ) &
        \#(command) >"$HOME/output" 2>"$HOME/log"
        status=$?
        # One that sees the last moment.
        : >"$HOME/over"
        wait
        stty -a
        exit $status
        """#
    }

    @Test(
        "A token's PIN is asked for once, and is in no output, log, argument or file", .enabled(if: isInstalled),
        arguments: ["fetch", "sign raw"])
    func thePINOfAToken(command: String) throws {
        try makeToken()
        try install("exec /usr/bin/pinentry-tty")
        try sandbox.write("to be signed", to: "home/data")
        let words = command == "fetch" ? command : #"\#(command) "$HOME/data" --out "$HOME/signature""#
        let result = try sandbox.atTerminal(
            watched("\"$CERTPROV\" \(words) \(token) --prompt pinentry -v -v"), asked: "Secret: ", with: variables
        ) { person in
            #expect(person.screen().contains("certprov asks:") && person.screen().contains("'service'"))
            try person.type(Self.pin + "\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 0, "\(screen) \(text("home/log"))")
        #expect(screen.components(separatedBy: "Secret: ").count == 2, "\(screen)")
        #expect(screen.contains(" echo ") && screen.contains(" icanon ") && screen.contains("susp = ^Z"), "\(screen)")
        #expect(!text("home/looks").isEmpty && text("home/found").isEmpty, "\(text("home/found"))")
        #expect(!screen.contains(Self.pin))
        let files = try sandbox.shell(#"grep -rlaF -f "$HOME/../pin" "$HOME" "$HOME/../state" || true"#)
        #expect(files.stdout.isEmpty, "\(files)")
        if command == "fetch" {
            #expect(text("home/output").contains("CN=client"))
        } else {
            try sandbox.shell(
                #"openssl dgst -sha256 -verify "$HOME/ec.pub" -signature "$HOME/signature" "$HOME/data""#
            ).expect()
        }
    }

    @Test("The property file names the program", .enabled(if: isInstalled)) func theProgramOfThePropertyFile() throws {
        try makeToken()
        let file = try sandbox.write(
            """
            CertificateProvider = pkcs11
            CertificateProvider.pkcs11.uri = pkcs11:token=service;object=ec
            CertificateProvider.pkcs11.module-path = \(Self.library)
            CertificateProvider.pkcs11.pin-source = prompt
            Signing.prompt-program = /usr/bin/pinentry-curses

            """, to: "client.properties")
        let result = try sandbox.atTerminal(
            "\"$CERTPROV\" fetch --config \(file) --prompt pinentry; status=$?; stty -a; exit $status", asked: "<OK>",
            with: variables
        ) { try $0.type(Self.pin + "\r") }
        guard let (status, screen) = result else { return }
        #expect(status == 0 && screen.contains("CN=client") && !screen.contains(Self.pin), "\(screen)")
        #expect(screen.contains(" echo "), "\(screen)")
    }

    @Test(
        "A signing request is approved by a pinentry, which then asks for the PIN, once", .enabled(if: isInstalled),
        arguments: [true, false])
    func aSigningRequest(isApproved: Bool) throws {
        try makeToken()
        try sandbox.write("the key of client 1", to: "client.key")
        let file = try sandbox.write(
            """
            CertificateProvider = pkcs11
            CertificateProvider.pkcs11.uri = pkcs11:token=service;object=ec
            CertificateProvider.pkcs11.module-path = \(Self.library)
            CertificateProvider.pkcs11.pin-source = prompt
            Signing.prompt = pinentry
            Signing.prompt-program = /usr/bin/pinentry-tty
            Signing.client.1.name = Test Bank
            Signing.client.1.key-source = file:\(sandbox.path)/client.key
            Signing.client.1.operations = sign-challenge

            """, to: "client.properties")
        try sandbox.shell(
            #"""
            set -e
            printf 'a challenge of this test' >"$HOME/challenge"
            encoded() { base64 -w0 | sed 's/+/%2B/g; s/\//%2F/g; s/=/%3D/g'; }
            mac() { openssl dgst -sha256 -binary | openssl dgst -sha256 -mac HMAC -macopt key:'the key of client 1' -binary; }
            printf '%s' 'sima://sign-challenge?scheme=bank&service-name=The%20Bank%0A%E2%80%AE&client-id=1&request-id=r1' \
                '&service-logo=data%3Aimage%2Fpng%3Bbase64%2CiVBORw0KGgo%3D' \
                "&challenge=$(encoded <"$HOME/challenge")&signature=$(mac <"$HOME/challenge" | encoded)" >"$HOME/request"
            """#
        ).require()
        let result = try sandbox.atTerminal(
            watched(#""$CERTPROV" requests open --input "$HOME/request" --config \#(file) -v -v"#), asked: "[ad]? ",
            with: variables
        ) { person in
            let screen = person.screen()
            for text in ["as client \"é\" ec for Test Bank?", "Client: 1", "unverified", "The Bank\\0a\\e280ae"] {
                #expect(screen.contains(text), "\(text): \(screen)")
            }
            try person.type(isApproved ? "a" : "d")
            guard isApproved else { return }
            person.sees("Secret: ", 1)
            try person.type(Self.pin + "\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == (isApproved ? 0 : 77), "\(screen) \(text("home/log"))")
        #expect(screen.components(separatedBy: "Secret: ").count == (isApproved ? 2 : 1), "\(screen)")
        #expect(screen.contains(" echo ") && text("home/found").isEmpty, "\(text("home/found"))")
        let files = try sandbox.shell(#"grep -rlaF -f "$HOME/../pin" "$HOME" "$HOME/../state" || true"#)
        #expect(files.stdout.isEmpty, "\(files)")
        guard isApproved else {
            #expect(text("home/output") == "bank://sign-challenge?status=error&message=operation-canceled\n")
            return
        }
        let verified = try sandbox.shell(
            #"""
            sed 's/.*[?&]signature=\([^&]*\).*/\1/; s/%2B/+/g; s/%2F/\//g; s/%3D/=/g' "$HOME/output" |
                openssl base64 -d -A >"$HOME/signature"
            openssl dgst -sha256 -verify "$HOME/ec.pub" -signature "$HOME/signature" "$HOME/challenge"
            """#)
        #expect(verified.status == 0, "\(verified) \(text("home/output"))")
    }

    @Test("A consent is that of the person at the pinentry", .enabled(if: isInstalled), arguments: [true, false])
    func consent(isPermitted: Bool) throws {
        try install("exec /usr/bin/pinentry-tty")
        #expect(try sandbox.certprov("keys", "create", "pair", "--type", "p256", "--confirm").status == 0)
        try sandbox.write("a text\n", to: "home/text")
        let result = try sandbox.atTerminal(
            #""$CERTPROV" keys sign pair "$HOME/text" --prompt pinentry >"$HOME/signature""#, asked: "[yn]? ",
            with: variables
        ) { try $0.type(isPermitted ? "y" : "n") }
        guard let (status, screen) = result else { return }
        #expect(screen.contains("'pair'"), "\(screen)")
        #expect(status == (isPermitted ? 0 : 77) && isPermitted != screen.contains("[userCancelled]"), "\(screen)")
        #expect(text("home/signature").isEmpty != isPermitted)
        // Stdin need not be a terminal.
        try install(
            "echo OK; while read -r line; do echo $(test \"$line\" = CONFIRM && ! \(isPermitted) && echo ERR 99 || echo OK); done"
        )
        #expect(try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("ec.p12"))).status == 0)
        let deleted = try sandbox.certprov(
            ["delete", "--prompt", "pinentry"] + adHoc(Fixtures.path("ec.p12")), with: variables
        ).expect(isPermitted ? 0 : 77)
        #expect(deleted.stderr.contains("[userCancelled]") != isPermitted, "\(deleted)")
    }

    /// A signal that ends the command at a question, and the keys that are typed for it.
    struct Ending: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var number: Int32
        var typed: String?
    }

    @Test(
        "A signal ends the program with the command, and the echo comes back", .enabled(if: isInstalled),
        arguments: [
            Ending(testDescription: "^C", number: SIGINT, typed: "half\u{3}"),
            Ending(testDescription: "TERM", number: SIGTERM), Ending(testDescription: "HUP", number: SIGHUP),
        ])
    func aSignalEndsBoth(ending: Ending) throws {
        try install("exec /usr/bin/pinentry-tty")
        let script = #"""
            trap : INT QUIT
            sh -c 'echo $$ >"$HOME/pid"; exec "$0" "$@"' "$CERTPROV" fetch --prompt pinentry --provider pkcs12 \
                --set path=\#(Fixtures.path("ec.p12")) --set password-source=prompt
            echo "status $?"
            if kill -0 "$(cat "$HOME/pinentry.pid")" 2>/dev/null; then echo "left running"; fi
            stty -a
            """#
        let result = try sandbox.atTerminal(script, asked: "Secret: ", with: variables) { person in
            if let typed = ending.typed {
                try person.type(typed)
            } else {
                try #require(kill(try #require(pid_t(text("home/pid").dropLast())), ending.number) == 0)
            }
        }
        guard let (_, screen) = result else { return }
        #expect(screen.contains("status \(128 + ending.number)"), "\(screen)")
        #expect(screen.contains(" echo ") && screen.contains(" icanon ") && !screen.contains("half"), "\(screen)")
        #expect(!screen.contains("left running"), "\(screen)")
    }

    @Test("A command that is killed takes the program with it") func killedCommand() throws {
        try install("echo OK; exec sleep 100000")
        let process = try sandbox.start(
            [BuiltCommand.path, "fetch", "--prompt", "pinentry"]
                + adHoc(Fixtures.path("ec.p12"), password: "prompt"), with: variables)
        while text("home/pinentry.pid").isEmpty { usleep(2000) }
        let pid = try #require(pid_t(text("home/pinentry.pid").dropLast()))
        // Of a session of its own: the signal is for the command alone.
        #expect(getsid(pid) == pid)
        process.send(SIGKILL)
        _ = process.wait()
        while true {
            guard let status = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8),
                status.split(separator: ")").last?.hasPrefix(" Z") != true
            else { break }
            usleep(2000)
        }
    }

    @Test("A program that is missing, or has no terminal, is named with the next step") func missing() throws {
        let options = ["fetch", "--json", "--prompt", "pinentry"] + adHoc(Fixtures.path("ec.p12"), password: "prompt")
        var variables = variables
        variables["PATH"] = sandbox.path + "/bin"
        let missing = try sandbox.certprov(options, with: variables).expectFailure("interactionRequired", status: 77)
        #expect(
            missing.contains("'pinentry' is not installed") && missing.contains("Signing.prompt-program"), "\(missing)")
        guard Self.isInstalled else { return }
        let silent = try sandbox.run(["setsid", "--wait", BuiltCommand.path] + options)
            .expectFailure("interactionRequired", status: 77)
        #expect(silent.contains("no terminal and no display"), "\(silent)")
        try sandbox.certprov(["fetch", "--prompt", "window"] + adHoc(Fixtures.path("ec.p12"))).expect(
            64, stderr: "terminal", "pinentry")
    }
}
