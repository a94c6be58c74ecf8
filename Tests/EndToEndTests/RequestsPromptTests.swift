import Foundation
import Glibc
import TestSupport
import Testing

/// Signers whose prompt can ask, or cannot; what `check` says of the section `Signing.`.
@Suite struct RequestsPromptTests {
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        for name in ["run", "bin"] { mkdir(sandbox.path + "/" + name, 0o700) }
        try sandbox.write("the key of client 1", to: "client.key")
    }

    private var variables: [String: String] { ["XDG_RUNTIME_DIR": sandbox.path + "/run"] }

    private func configure(_ settings: String...) throws -> String {
        let lines = [
            "Signing.time-stamp-url = none", "Signing.client.1.name = Test Bank",
            "Signing.client.1.key-source = file:\(sandbox.path)/client.key",
        ]
        return try sandbox.configure((lines + settings).joined(separator: "\n"), to: "requests.properties")
    }

    private static let challenges = "Signing.client.1.operations = sign-challenge"
    private static let documents = "Signing.client.1.operations = sign-pdf"

    /// The findings about signing requests, but for the number of applications.
    private func findings(_ file: String, _ options: String...) throws -> [String] {
        let checked = try sandbox.certprov(["check", "--json", "--config", file] + options, with: variables)
        return try checked.document("CheckReport")["items"].array.filter {
            $0["what"].string?.hasPrefix("signing requests") == true && $0["severity"].string != "ok"
        }.map { "\($0["severity"].string ?? "") \($0["what"].string ?? ""): \($0["detail"].string ?? "")" }.filter {
            !$0.contains("may also be used for TLS")
        }
    }

    /// The lines of a signer until it has answered a request.
    private func linesAtTheStart(_ file: String, _ options: String...) throws -> String {
        let signer = try sandbox.start(
            [BuiltCommand.path, "requests", "serve", "--config", file] + options, with: variables)
        try signer.waitUntil { RequestsServeTests.takesConnections(sandbox.path + "/run/certprov/requests.sock") }
        try sandbox.certprov(
            "requests", "send", file, "--client-id", "2", "--key-source",
            "file:\(sandbox.path)/client.key", "--service-name", "Loans", with: variables
        ).expect(77, stderr: "validate-request-error")
        signer.send(SIGTERM)
        return signer.wait().stderr
    }

    struct Prompt: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var settings: [String]
        /// Part of the message; `nil` if a person can be asked.
        var problem: String?
        var severity = "warning"
    }

    @Test(
        "A signer whose prompt cannot ask says so at its start, and check says it too",
        arguments: [
            Prompt(testDescription: "terminal", settings: [], problem: "has no terminal"),
            Prompt(
                testDescription: "a missing program",
                settings: ["Signing.prompt = pinentry", "Signing.prompt-program = /nosuch/pinentry"],
                problem: "is not installed", severity: "error"),
            Prompt(
                testDescription: "a file that cannot be executed",
                settings: ["Signing.prompt = pinentry", "Signing.prompt-program = /etc/passwd"],
                problem: "is not installed", severity: "error"),
            Prompt(
                testDescription: "pinentry without a terminal",
                settings: ["Signing.prompt = pinentry", "Signing.prompt-program = /usr/bin/pinentry-tty"],
                problem: "has no terminal and no display"),
            Prompt(
                testDescription: "a program of another kind",
                settings: ["Signing.prompt = pinentry", "Signing.prompt-program = /bin/true"],
                problem: "has ended without an answer"),
            Prompt(testDescription: "queue", settings: ["Signing.prompt = queue"]),
            Prompt(testDescription: "no person is asked", settings: ["Signing.client.1.approval = unattended"]),
        ])
    func promptsThatCannotAsk(prompt: Prompt) throws {
        let file = try configure(([Self.challenges] + prompt.settings).joined(separator: "\n"))
        let found = try findings(file).filter { $0.contains("prompt: ") }
        let said = try linesAtTheStart(file)
        if let problem = prompt.problem {
            #expect(found.count == 1 && found[0].hasPrefix(prompt.severity) && found[0].contains(problem), "\(found)")
            for said in [said, try linesAtTheStart(file, "--json")] {
                #expect(said.contains("no person can be asked") && said.contains(problem), "\(said)")
            }
            #expect(try findings(file, "--prompt", "pinentry").count == found.count)
        } else {
            #expect(found.isEmpty && !said.contains("can be asked"), "\(found) \(said)")
        }
    }

    @Test("At a terminal, and with a program that does not say its kind, the prompt can ask")
    func promptsThatCanAsk() throws {
        try sandbox.install(
            "#!/bin/sh\necho OK\nwhile read -r line; do echo OK; done\n", to: "bin/pinentry", mode: "755")
        let program = try configure(
            Self.challenges, "Signing.prompt = pinentry", "Signing.prompt-program = \(sandbox.path)/bin/pinentry")
        #expect(try findings(program).isEmpty)
        let file = try configure(Self.challenges)
        let result = try sandbox.atTerminal(
            #""$CERTPROV" check --config \#(file); printf done; read line"#, asked: "done"
        ) { try $0.type("\n") }
        #expect(result.map { !$0.1.contains("has no terminal") } ?? true)
    }

    @Test("check: without any user-code no request for a document can be right")
    func userCode() throws {
        let none = try findings(try configure(Self.documents, "Signing.prompt = queue"))
        #expect(none.count == 1 && none[0].hasPrefix("error signing requests user-code: "), "\(none)")
        #expect(none.first?.contains("Set Signing.user-code") == true, "\(none)")
        #expect(try findings(try configure(Self.challenges, "Signing.prompt = queue")).isEmpty)
        #expect(
            try findings(try configure(Self.documents, "Signing.prompt = queue", "Signing.user-code = 1234567")).isEmpty
        )
        // The serialNumber of the subject.
        try sandbox.shell(
            #"""
            cd "$1"; umask 077
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 -keyout numbered.key \
                -subj /CN=alice/serialNumber=PNOAZ-1234567 -addext keyUsage=critical,digitalSignature -out numbered.pem
            openssl pkcs12 -export -inkey numbered.key -in numbered.pem -passout "pass:$P12_PASSWORD" -out numbered.p12
            """#, sandbox.path
        ).require()
        let numbered = try String(
            contentsOfFile: try configure(Self.documents, "Signing.prompt = queue"), encoding: .utf8)
        let file = try sandbox.write(
            numbered.replacing(Fixtures.path("ec.p12"), with: sandbox.path + "/numbered.p12"), to: "numbered.properties"
        )
        #expect(try sandbox.certprov("fetch", "--config", file).status == 0)
        #expect(try findings(file).isEmpty)
    }

    @Test(
        "check warns of challenges that are signed without a person",
        arguments: ["unattended", "sign-challenge:unattended"])
    func unattended(approval: String) throws {
        let operations = "Signing.client.1.operations = sign-challenge, sign-pdf"
        let more = ["Signing.user-code = 1234567", "Signing.prompt = queue"]
        let warned = try findings(
            try configure(([operations, "Signing.client.1.approval = \(approval)"] + more).joined(separator: "\n")))
        #expect(
            warned.count == 1 && warned[0].hasPrefix("warning signing requests: Client 1, 'Test Bank'")
                && warned[0].contains("without a person"), "\(warned)")
        for harmless in ["ask", "sign-pdf:unattended"] {
            let file = try configure(
                ([operations, "Signing.client.1.approval = \(harmless)"] + more).joined(separator: "\n"))
            #expect(try findings(file).isEmpty)
        }
    }

    @Test(
        "--prompt queue of open and serve shows nothing, and the request waits for another terminal",
        arguments: [true, false])
    func queue(isApproved: Bool) throws {
        let file = try configure(Self.challenges)
        try sandbox.shell(
            #"""
            openssl rand -out "$1/challenge" 64
            "$CERTPROV" requests send "$1/challenge" --client-id 1 --key-source "file:$1/client.key" \
                --service-name Loans --url >"$1/request"
            """#, sandbox.path
        ).require()
        let signer = try sandbox.start(
            [
                BuiltCommand.path, "requests", "open", "--prompt", "queue", "--input", sandbox.path + "/request",
                "--config", file,
            ], with: variables)
        var id: String?
        try signer.waitUntil {
            let listed = try? sandbox.certprov("requests", "list", "--json").document("WaitingRequestList")
            id = listed?["items"].array.first { $0["state"].string == "waiting" }?["id"].string
            return id != nil
        }
        let waiting = try #require(id)
        try sandbox.certprov("requests", "show", waiting).expect(stdout: "for Test Bank?", "Loans")
        if isApproved {
            try sandbox.certprov("requests", "approve", waiting, "--yes").expect(stdout: "approved")
        } else {
            try sandbox.certprov("requests", "decline", waiting).expect(stdout: "declined")
        }
        let output = signer.wait()
        #expect(output.status == (isApproved ? 0 : 77), "\(output)")
        #expect(
            output.stdout.hasPrefix(
                "sima://sign-challenge?status="
                    + (isApproved ? "success&signature=" : "error&message=operation-canceled")), "\(output)")
    }

    @Test("--prompt queue is for the signer alone", arguments: ["fetch", "check", "list"])
    func noQueue(command: String) throws {
        try sandbox.certprov(command, "--prompt", "queue", "--config", try configure(Self.challenges)).expect(
            64, stdout: "", stderr: "certprov requests serve")
    }
}
