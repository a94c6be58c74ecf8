import CertificateProviding
import Foundation
import SigningRequests
import TestSupport
import Testing

/// Each code of a refusal by the command line, through each carrier: a file, a URL that the desktop opens, and the socket.
@Suite(.enabled(if: TestLength.hasSeconds)) struct ResponseCodesTests {
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        let made = try sandbox.shell(
            #"""
            set -e; cd "$1"; umask 077
            for name in person:P-256 other:P-384; do
                openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:${name#*:} -noenc -days 30 -subj "/CN=${name%:*}" \
                    -addext keyUsage=critical,digitalSignature -addext extendedKeyUsage=emailProtection \
                    -keyout ${name%:*}.key -out ${name%:*}.pem
            done
            printf 'the key' >client.key
            mkdir bin run
            # The desktop's way back: a program that records what it gets.
            printf '#!/bin/sh\nprintf %%s "$1" >"%s/opened"\n' "$1" >xdg-open
            install -m 755 xdg-open bin/xdg-open
            """#, sandbox.path)
        try #require(made.status == 0, "\(made)")
    }

    private var variables: [String: String] {
        [
            "XDG_RUNTIME_DIR": sandbox.path + "/run",
            "PATH": sandbox.path + "/bin:" + (sandbox.environment["PATH"] ?? ""),
        ]
    }

    private func configuration(_ settings: [String: String]) throws -> String {
        var all = [
            "CertificateProvider": "pem", "CertificateProvider.pem.certificate": sandbox.path + "/person.pem",
            "CertificateProvider.pem.key": sandbox.path + "/person.key", "CertificateProvider.pem.usage": "signature",
            "Signing.user-code": "1234567", "Signing.time-stamp-url": "none", "Signing.client.1.name": "Bank",
            "Signing.client.1.key-source": "file:\(sandbox.path)/client.key",
            "Signing.client.1.operations": "sign-pdf, sign-challenge", "Signing.client.1.return-schemes": "bank",
            "Signing.client.1.approval": "unattended",
        ]
        all.merge(settings) { $1 }
        return try sandbox.write(all.map { "\($0.key) = \($0.value)\n" }.joined().utf8, to: "requests.properties")
    }

    struct Case: Sendable, CustomTestStringConvertible {
        let code: ResponseCode?
        let status: Int32
        var operation = SigningOperation.signChallenge
        var data: [UInt8]?
        var items: [String: String?] = [:]
        var settings: [String: String] = [:]
        var host: String?
        var testDescription: String { code?.rawValue ?? "signed" }

        init(
            _ code: ResponseCode?, _ status: Int32, _ operation: SigningOperation = .signChallenge,
            data: [UInt8]? = nil,
            items: [String: String?] = [:], settings: [String: String] = [:], host: String? = nil
        ) {
            (self.code, self.status, self.operation, self.data) = (code, status, operation, data)
            (self.items, self.settings, self.host) = (items, settings, host)
        }

        /// - Parameter number: Makes each request another one.
        func url(_ number: Int) throws -> String {
            let data =
                data
                ?? (operation == .signPDF ? TestPDF.bytes + "%\(number)\n".utf8 : Array("challenge \(number)".utf8))
            let request = SigningRequest(
                operation, data, serviceName: "Service", clientID: 1, documentName: "contract.pdf", userCode: "1234567",
                requestID: "R1", returnScheme: "bank")
            var url = try request.url(key: SecretBytes(utf8: "the key"))
            if let host { url.host = host }
            for (name, value) in items {
                url.items.removeAll { $0.name == name }
                if let value { url.items.append(.init(name, value)) }
            }
            return url.text
        }
    }

    private static let cases = [
        Case(nil, 0), Case(nil, 0, .signPDF),
        Case(.wrongOperationType, 64, host: "sign-xml"),
        Case(.emptyData, 64, items: ["challenge": nil]),
        Case(.challengeProcessingError, 65, items: ["challenge": "*"]),
        Case(.challengeProcessingError, 65, data: Array(repeating: 0x20, count: 64) + "TLS 1.3".utf8),
        Case(.documentProcessingError, 65, .signPDF, data: Array("no PDF".utf8)),
        Case(.emptyService, 64, items: ["service-name": " "]),
        Case(.emptySignature, 64, items: ["signature": nil]),
        Case(.emptyUserCode, 64, .signPDF, items: ["user-code": nil]),
        Case(.wrongLogoFormat, 64, items: ["service-logo": "https://example.com/logo.png"]),
        Case(
            .wrongLogoSize, 64,
            items: ["service-logo": "data:image/png;base64," + String(repeating: "A", count: 682_672)]),
        Case(.validateRequestError, 77, items: ["signature": "QQ=="]),
        Case(.wrongUserCode, 77, .signPDF, items: ["user-code": "7654321"]),
        Case(
            .signChallengeError, 69,
            settings: [
                "CertificateProvider.pem.certificate": "$/other.pem", "CertificateProvider.pem.key": "$/other.key",
            ]),
        Case(.signDocumentError, 69, .signPDF, settings: ["CertificateProvider.pem.certificate": "$/none.pem"]),
        // There is no terminal to ask at.
        Case(.approveRequestError, 77, settings: ["Signing.client.1.approval": "ask"]),
        Case(
            .timestampRequestError, 69, .signPDF,
            settings: ["Signing.time-stamp-url": "http://127.0.0.1:9/", "Signing.time-stamp-anchors": "$/person.pem"]),
    ]

    @Test("Each code, and a signature, through each carrier", arguments: cases)
    func responseCodes(one: Case) async throws {
        let config = try configuration(one.settings.mapValues { $0.replacing("$/", with: sandbox.path + "/") })
        let code = one.code?.rawValue
        func check(_ text: String, _ carrier: String) throws {
            let reply = try #require(RequestURL(Array(text.utf8)), "\(carrier): \(text)")
            #expect(reply.scheme == "bank" && reply.host == one.host ?? one.operation.rawValue, "\(carrier): \(text)")
            #expect(
                reply["message"] == code && reply["status"] == (code == nil ? "success" : "error"),
                "\(carrier): \(text)")
        }

        let input = try sandbox.write(try one.url(1).utf8, to: "request")
        let file = try sandbox.certprov("requests", "open", "--input", input, "--config", config, with: variables)
        #expect(file.status == one.status, "\(file)")
        #expect(code.map { file.stderr.contains("certprov: \($0): ") } != false, "\(file)")
        try check(file.stdout, "file")

        let opened = URL(filePath: sandbox.path + "/opened")
        let url = try one.url(2)
        if url.utf8.count <= 131_071 {
            let handled = try sandbox.certprov("requests", "open", url, "--config", config, with: variables)
            #expect(handled.status == one.status && handled.stdout == "", "\(handled)")
            try check(String(decoding: try Data(contentsOf: opened), as: UTF8.self), "URL")
        }

        let socket = sandbox.path + "/run/certprov/requests.sock"
        let signer = try sandbox.start(
            [BuiltCommand.path, "requests", "serve", "--config", config], with: variables)
        while !RequestsServeTests.takesConnections(socket), !signer.hasEnded {
            try await Task.sleep(for: .milliseconds(20))
        }
        let reply = try await RequestSocket.send(try one.url(3), to: socket, within: .seconds(120))
        try check(String(decoding: reply, as: UTF8.self), "socket")
        signer.send(SIGTERM)
        let end = signer.wait()
        // The output has no key of a client, and no data.
        #expect(!"\(file)\(end)".contains("the key"))
    }

    @Test("A journal that cannot be written: internal-error, and nothing is signed")
    func journal() async throws {
        let config = try configuration([:])
        let made = try sandbox.shell(
            #"mkdir -p -m 700 "$1/certprov/requests" && mkdir "$1/certprov/requests/journal.jsonl""#,
            sandbox.path + "/state")
        try #require(made.status == 0, "\(made)")
        let input = try sandbox.write(try Case(nil, 0).url(1).utf8, to: "request")
        let refused = try sandbox.certprov("requests", "open", "--input", input, "--config", config, with: variables)
        #expect(refused.status == 70 && refused.stdout.contains("message=internal-error"), "\(refused)")
    }

    @Test(
        "Killed at any moment: no reply has a signature that the journal does not know, and no second one is made without a person"
    )
    func kills() throws {
        let config = try configuration(["Signing.client.1.unattended-per-hour": "1000"])
        for number in 0..<30 {
            try sandbox.write(try Case(nil, 0).url(number).utf8, to: "request-\(number)")
            try sandbox.write(Array("challenge \(number)".utf8), to: "challenge-\(number)")
        }
        let ran = try sandbox.shell(
            #"""
            cd "$1"; known=0; journal=state/certprov/requests/journal.jsonl
            for number in $(seq 0 29); do
                digest=$(sha256sum <challenge-$number | cut -d' ' -f1)
                timeout -s KILL 0.$(printf %03d $((number * 7 + 1))) \
                    "$CERTPROV" requests open --input request-$number --config "$2" >reply 2>/dev/null
                lines=$(grep -c "\"digest\":\"$digest\"" $journal 2>/dev/null)
                [ "${lines:-0}" -le 1 ] || { echo "$number: $lines lines"; exit 1; }
                signed=$(grep "\"digest\":\"$digest\"" $journal 2>/dev/null | grep -c '"outcome":"signed"')
                if grep -q status=success reply; then [ "$signed" = 1 ] || { echo "$number: not in the journal"; exit 2; }; fi
                known=$((known + signed))
                "$CERTPROV" requests open --input request-$number --config "$2" >reply
                if [ "${lines:-0}" = 1 ]; then code=validate-request-error; else code=status=success; fi
                grep -q $code reply || { echo "$number: $(cat reply)"; exit 3; }
            done
            echo "$known of 30"
            """#, sandbox.path, config)
        #expect(ran.status == 0, "\(ran)")
    }

    @Test("A certificate that another tool replaces signs the next request")
    func replacedFiles() throws {
        let config = try configuration([:])
        func signer(_ number: Int) throws -> String {
            let input = try sandbox.write(try Case(nil, 0).url(number).utf8, to: "request")
            let reply = try sandbox.certprov("requests", "open", "--input", input, "--config", config, with: variables)
            #expect(reply.status == 0, "\(reply)")
            let certificate = RequestURL(reply.stdoutBytes)?["certificate"]?.strictBase64
            return try X509Certificate(derRepresentation: try #require(certificate)).subject
        }
        #expect(try signer(1) == "CN=person")
        let made = try sandbox.shell(
            #"""
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 -subj /CN=second \
                -addext extendedKeyUsage=emailProtection -keyout person.key -out person.pem
            """#, sandbox.path)
        try #require(made.status == 0)
        #expect(try signer(2) == "CN=second")
    }

    @Test(
        "A scheme that is not the client's is not opened, whatever the request is",
        arguments: ["other", "file", "sima", "http"])
    func schemes(scheme: String) throws {
        let config = try configuration([:])
        let url = try Case(.validateRequestError, 77, items: ["scheme": scheme]).url(1)
        let refused = try sandbox.certprov("requests", "open", url, "--config", config, with: variables)
        #expect(refused.status == 77 && !FileManager.default.fileExists(atPath: sandbox.path + "/opened"), "\(refused)")
    }

    @Test(
        "A mistake in the settings is found at the start",
        arguments: [
            (["Signing.client.1.operations": "sign"], "must be sign-pdf, sign-challenge"),
            (["Signing.client.1.key-source": "prompt"], "must be file:PATH"),
            (["Signing.client.1.return-schemes": "bank, https"], "must be URL schemes of applications"),
            (["Signing.client.1.approval": "always"], "must be ask or unattended"),
            (["Signing.client.4294967296.name": "x"], "is missing"),
            (["Signing.client.1.nam": "x"], "is unknown; there are Signing.prompt"),
            (["Signing.time-stamp-url": "http://tsa.example/"], "needs Signing.time-stamp-anchors"),
            (["Signing.max-document": "1"], "must be a number of bytes"),
            (["Signing.prompt": "window"], "must be terminal, pinentry or queue"),
        ])
    func mistakes(settings: [String: String], message: String) throws {
        let refused = try sandbox.certprov(
            "requests", "serve", "--config", try configuration(settings), with: variables)
        #expect(refused.status == 78 && refused.stderr.contains(message), "\(refused)")
    }

    @Test("Unattended approval is refused where others may change the file", arguments: ["o+w", "g+w"])
    func permissions(mode: String) throws {
        let config = try configuration([:])
        #expect(try sandbox.shell("chmod \(mode) \"$1\"", config).status == 0)
        let refused = try sandbox.certprov("requests", "serve", "--config", config, with: variables)
        #expect(refused.status == 78 && refused.stderr.contains("chmod go-w"), "\(refused)")
        let asking = try configuration(["Signing.client.1.approval": "ask"])
        #expect(try sandbox.shell("chmod \(mode) \"$1\"", asking).status == 0)
        let input = try sandbox.write(try Case(nil, 0).url(1).utf8, to: "request")
        let asked = try sandbox.certprov("requests", "open", "--input", input, "--config", asking, with: variables)
        #expect(asked.status == 77 && asked.stdout.contains("approve-request-error"), "\(asked)")
    }

    @Test(
        "Unattended approval is refused where others may change a directory above the file, or a link on the way to it",
        arguments: [
            "chmod o+w outer", "chmod g+w outer", "chmod o+w outer/inner", "chmod o+w elsewhere",
            "ln -s ../elsewhere shared/way",
        ])
    func directories(change: String) throws {
        let made = try sandbox.shell(
            #"""
            cd "$1"; umask 022; mkdir -p outer/inner elsewhere shared; chmod 755 . outer outer/inner elsewhere
            chmod 777 shared; mv "$2" outer/inner/p; ln -s ../outer/inner/p elsewhere/p
            """#, sandbox.path, try configuration([:]))
        try #require(made.status == 0, "\(made)")
        let isLink = change.hasPrefix("ln")
        func check(_ path: String) throws -> Output {
            let input = try sandbox.write(try Case(nil, 0).url(1).utf8, to: "request")
            return try sandbox.certprov(
                "requests", "open", "--input", input, "--config", sandbox.path + path, with: variables)
        }
        if !isLink { #expect(try check("/elsewhere/p").status == 0) }
        #expect(try sandbox.shell("cd \"$1\"; \(change)", sandbox.path).status == 0)
        let refused = try check(isLink ? "/shared/way/p" : "/elsewhere/p")
        #expect(refused.status == 78 && refused.stderr.contains("without a person"), "\(refused)")
        #expect(refused.stderr.contains("or use ask"), "\(refused)")
    }

    @Test("Two requests, and two answers typed at the first question: the second is asked about")
    func twoAnswersAtOnce() throws {
        let config = try configuration(["Signing.client.1.approval": "ask"])
        for number in 1...2 { try sandbox.write(try Case(nil, 0).url(number).utf8, to: "request-\(number)") }
        let command = #"""
            for n in 1 2; do "$CERTPROV" requests open --input "\#(sandbox.path)/request-$n" --config \#(config); echo "end $n"; done
            """#
        let result = try sandbox.atTerminal(command, asked: "Sign? [y/N] ", with: variables) { person in
            #expect(person.screen().contains("Sign a challenge of 11 bytes as person for Bank?"), "\(person.screen())")
            try person.type("y\ny\n")
            person.sees("Sign? [y/N] ", 2)
            try person.type("n\n")
        }
        guard let (_, screen) = result else { return }
        let parts = screen.components(separatedBy: "end 1")
        #expect(parts[0].contains("status=success") && parts.last?.contains("operation-canceled") == true, "\(screen)")
    }

    @Test("A key opens the document before the answer, and the question is asked again")
    func opensTheDocument() throws {
        let config = try configuration(["Signing.client.1.approval": "ask"])
        try sandbox.write(try Case(nil, 0, .signPDF).url(1).utf8, to: "request")
        let command =
            #""$CERTPROV" requests open --input "\#(sandbox.path)/request" --config \#(config) >"$HOME/reply""#
        let result = try sandbox.atTerminal(command, asked: "opens the document] ", with: variables) { person in
            try person.type("o\n")
            person.sees("opens the document] ", 2)
            let opened = String(decoding: try contents(sandbox.path + "/opened"), as: UTF8.self)
            #expect(person.screen().contains("Copy:") && person.screen().contains(opened), "\(opened)")
            #expect(try contents(opened).starts(with: TestPDF.bytes))
            try person.type("y\n")
        }
        guard let (status, screen) = result else { return }
        #expect(status == 0, "\(screen)")
    }

    @Test("check warns of an identity for requests that may also be used for TLS")
    func check() throws {
        let config = try configuration([:])
        let good = try sandbox.certprov("check", "--config", config)
        #expect(good.stdout.contains("signing requests") && !good.stdout.contains("also be used for TLS"), "\(good)")
        let made = try sandbox.shell(
            #"cd "$1" && openssl req -x509 -key person.key -days 30 -subj /CN=person -out person.pem"#, sandbox.path)
        try #require(made.status == 0)
        let warned = try sandbox.certprov("check", "--config", config)
        #expect(warned.stdout.contains("may also be used for TLS"), "\(warned)")
    }
}
