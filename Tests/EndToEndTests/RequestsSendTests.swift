import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// `requests send`: the caller's side. Replies come from files, and from a socket of this test.
@Suite struct RequestsSendTests {
    private let sandbox: Sandbox
    private static let key = "the client's own key"

    init() throws {
        sandbox = try Sandbox()
        try sandbox.write(Self.key + "\n", to: "key")
        try sandbox.write(Array(repeating: 7, count: 64), to: "challenge")
        try sandbox.write(TestPDF.bytes, to: "contract.pdf")
    }

    private func path(_ name: String) -> String { sandbox.path + "/" + name }

    private func exists(_ name: String) -> Bool { access(path(name), F_OK) == 0 }

    private var request: [String] {
        ["--client-id", "1", "--key-source", "file:\(path("key"))", "--service-name", "Bank"]
    }

    private func send(_ file: String, _ options: [String]) throws -> Output {
        try sandbox.certprov(["requests", "send", path(file)] + options)
    }

    /// Verifies a reply, with JSON.
    private func verify(_ reply: String, of file: String = "challenge", _ options: String...) throws -> Output {
        let reply = try sandbox.write(reply, to: "reply")
        return try send(file, ["--reply", reply, "--json"] + options)
    }

    /// The items of a reply to the challenge, signed by OpenSSL's command.
    private func challengeItems(by fixture: String = "ec") throws -> String {
        let made = try sandbox.shell(
            """
            printf 'signature=%s&certificate=%s' "$(openssl dgst -sha256 -sign "$2.key" "$1" | base64 -w0)" \
                "$(openssl x509 -in "$2.pem" -outform DER | base64 -w0)"
            """, path("challenge"), Fixtures.path(fixture)
        ).require()
        return made.stdout
    }

    // MARK: - Words

    static let words: [(String, Int32)] =
        [
            "wrong-operation-type", "empty-data", "empty-service", "empty-client-id", "empty-signature",
            "empty-user-code",
            "wrong-logo-format", "wrong-logo-size",
        ].map { ($0, 64) } + ["document-processing-error", "challenge-processing-error"].map { ($0, 65) }
        + ["sign-document-error", "sign-challenge-error", "timestamp-request-error"].map { ($0, 69) }
        + [("internal-error", 70)]
        + [
            "validate-request-error", "wrong-user-code", "operation-canceled", "approve-request-error", "another-word",
        ].map { ($0, 77) }

    @Test("Each word of a signer has a sentence and a status", arguments: words)
    func signersWords(word: String, status: Int32) throws {
        let reply = "sima://sign-challenge?status=error&message=\(word)"
        let output = try verify(reply)
        let error = try #require(try output.errorDocuments().first)
        #expect(output.status == status && output.stdout.isEmpty, "\(output)")
        #expect(error["reason"].string == word)
        let message = error["message"].string ?? ""
        #expect(message.hasPrefix("\(word): The signer refuses") && message.count > word.count + 30, "\(message)")
        // On a terminal too.
        let text = try send("challenge", ["--reply", path("reply")])
        #expect(text.status == status && text.stderr.hasPrefix("certprov: \(word): "), "\(text)")
    }

    @Test("Each word of a caller has a sentence and a status")
    func callersWords() throws {
        let items = try challengeItems()
        let p384 = try challengeItems(by: "p384")
        let good = "sima://sign-challenge?status=success&" + items
        let cases: [(String, String, Int32)] = [
            ("", "empty-response", 69), ("\n", "empty-response", 69), ("no reply", "parse-url-error", 65),
            (good + "%", "parse-url-error", 65), ("sima://sign-challenge", "parse-url-error", 65),
            ("sima://sign-pdf?status=success&" + items, "wrong-operation-type", 65),
            ("sima://sign-challenge?status=success&certificate=QUFB", "certificate-parse-error", 65),
            ("sima://sign-challenge?status=success&" + p384, "public-key-copy-error", 65),
            (good.replacing("signature=M", with: "signature=N"), "signature-verification-error", 65),
        ]
        for (reply, word, status) in cases {
            let output = try verify(reply)
            let error = try output.errorDocuments().first
            #expect(output.status == status && error?["reason"].string == word, "\(output)")
            #expect(error?["message"].string?.hasPrefix("\(word): ") == true, "\(output)")
        }
        try verify(good, "--trust-anchors", Fixtures.path("p384.pem")).expect(
            65, stderr: "signature-verification-error")
        try verify(good, "--trust-anchors", Fixtures.path("intermediate.pem")).expect()
    }

    @Test("What each signer would refuse by its form is not sent, with the signer's word")
    func callersMistakes() throws {
        let pdf = ["--user-code", "1", "--url"]
        let big = RequestLogoFile.png + Array(repeating: 0, count: 512_001 - RequestLogoFile.png.count)
        try sandbox.write(big, to: "big.png")
        try sandbox.write(Array(big.dropLast()), to: "full.png")
        try sandbox.write("<svg/>", to: "logo.svg")
        try sandbox.write(Array(repeating: 7, count: 4097), to: "long")
        try sandbox.write([], to: "empty")
        let cases: [(String, [String], String, Int32)] = [
            ("empty", ["--url"], "empty-data", 64), ("long", ["--url"], "challenge-processing-error", 65),
            ("challenge", ["--url", "--service-name", " "], "empty-service", 64),
            ("contract.pdf", ["--url"], "empty-user-code", 64),
            ("contract.pdf", ["--url", "--user-code", ""], "empty-user-code", 64),
            ("contract.pdf", pdf + ["--logo", path("logo.svg")], "wrong-logo-format", 64),
            ("contract.pdf", pdf + ["--logo", path("big.png")], "wrong-logo-size", 64),
        ]
        for (file, options, word, status) in cases {
            let own = options.contains("--service-name") ? Array(request.prefix(4)) : request
            let output = try send(file, own + options + ["--json"]).expect(status, stdout: "")
            #expect(try output.errorDocuments().first?["reason"].string == word, "\(output)")
        }
        #expect(try send("contract.pdf", request + pdf + ["--logo", path("full.png")]).status == 0)
        // A word is for mistakes in a request, not on a command line.
        for options in [
            ["--client-id", "1"], ["--url", "--reply", "x"], ["--reply", "x", "--client-id", "1"],
            request + ["--challenge", "--pdf"], request + ["--url", "--out", "x"], request.replacing("1", with: "-1"),
            request.replacing("1", with: "4294967296"), request + ["--provider", "pem"], request + ["--force"],
            request + ["--url", "--socket", "x"], request + ["--timeout", "1"],
            ["--client-id", "1", "--service-name", "Bank", "--key-source", "prompt"],
        ] {
            let output = try send("challenge", options)
            #expect(output.status == 64 && !output.stderr.contains("reason"), "\(options) \(output)")
        }
        let key = try send("challenge", ["--client-id", "1", "--service-name", "Bank", "--key-source", Self.key])
        #expect(key.status == 64 && !key.description.contains(Self.key), "\(key)")
    }

    // MARK: - Requests

    @Test("The HMAC of the URL is that of OpenSSL's pipeline, and the key is not in it")
    func requestURL() throws {
        let output = try send("contract.pdf", request + ["--url", "--user-code", "12 &+", "--scheme", "bank"])
        let hmac = try sandbox.shell(
            """
            openssl dgst -sha256 -binary "$1" | openssl dgst -sha256 -mac HMAC -macopt "key:$2" -binary | base64
            """, path("contract.pdf"), Self.key)
        #expect(output.status == 0 && !output.description.contains(Self.key), "\(output)")
        let url = try #require(URLComponents(string: output.stdout.filter { $0 != "\n" }))
        let items = Dictionary((url.queryItems ?? []).map { ($0.name, $0.value ?? "") }) { _, _ in "twice" }
        #expect(url.scheme == "sima" && url.host == "sign-pdf")
        #expect(items["signature"] == hmac.stdout.filter { $0 != "\n" })
        #expect(items["document"] == Data(TestPDF.bytes).base64EncodedString())
        #expect(items["document-name"] == "contract.pdf" && items["user-code"] == "12 &+" && items["scheme"] == "bank")
        #expect(items["request-id"].flatMap(UUID.init(uuidString:)) != nil)
        let named = try send(
            "contract.pdf",
            request + ["--url", "--json", "--challenge", "--request-id", "A-1", "--document-name", "x"])
        let document = try named.document("SigningRequest")
        #expect(document["operation"].string == "sign-challenge" && document["requestID"].string == "A-1")
        #expect(document["url"].string?.contains("document") == false)
        let piped = try sandbox.run(
            ["sh", "-c", "exec \"$CERTPROV\" requests send --url \"$@\" <\"$0\"", path("contract.pdf")] + request
                + ["--user-code", "1"])
        #expect(piped.status == 0 && !piped.stdout.contains("document-name"), "\(piped)")
    }

    // MARK: - Results

    @Test("A verified reply gives the signer's subject, the signature and the certificate")
    func challengeResults() throws {
        let reply = "sima://sign-challenge?status=success&" + (try challengeItems())
        let output = try verify(
            reply, "--out", path("signature"), "--certificate-out", path("signer.pem"), "--trust-anchors",
            Fixtures.path("intermediate.pem"))
        let document = try output.document("SigningReply")
        #expect(document["validated"].bool == true && document["warnings"].array.isEmpty)
        #expect(document["file"].string == path("signature"))
        try sandbox.shell(
            """
            openssl x509 -in "$1/signer.pem" -noout -pubkey >"$1/key.pem" &&
                openssl dgst -sha256 -verify "$1/key.pem" -signature "$1/signature" "$1/challenge"
            """, sandbox.path
        ).expect()
        #expect(try Data(contents(path("signature"))).base64EncodedString() == document["signature"].string)
        // Without anchors it says so.
        let plain = try send("challenge", ["--reply", path("reply")])
        #expect(plain.status == 0 && plain.stdout == (document["subject"].string ?? "") + "\n", "\(plain)")
        #expect(plain.stderr.contains("not validated"), "\(plain)")
        // An existing file stays.
        try send("challenge", ["--reply", path("reply"), "--out", path("signature")]).expect(73)
        for input in ["challenge", "reply"] {
            let before = try contents(path(input))
            let over = try send("challenge", ["--reply", path("reply"), "--out", path(input), "--force"])
            #expect(try over.status == 64 && contents(path(input)) == before, "\(over)")
        }
    }

    @Test("A signed document is written whole after it is verified, and not without")
    func documentResults() throws {
        let signed = path("signed.pdf")
        try sandbox.certprov(
            ["sign", "pdf", path("contract.pdf"), "--out", signed] + adHoc(Fixtures.path("ec.p12"))
        ).require()
        func reply(_ document: [UInt8]) -> String {
            "sima://sign-pdf?status=success&document=\(Data(document).base64EncodedString())"
        }
        let bytes = try contents(signed)
        try verify(reply(bytes), of: "contract.pdf").expect(64)
        var changed = bytes
        changed[changed.count - 10] ^= 1
        for document in [changed, Array(bytes.dropLast()), TestPDF.bytes] {
            try verify(reply(document), of: "contract.pdf", "--out", path("out.pdf")).expect(
                65, stderr: "signature-verification-error")
            #expect(!exists("out.pdf"))
        }
        let output = try verify(
            reply(bytes), of: "contract.pdf", "--out", path("out.pdf"), "--trust-anchors", Fixtures.path("root.pem"))
        let document = try output.document("SigningReply")
        #expect(document["validated"].bool == true && document["signature"].isNull)
        #expect(try contents(path("out.pdf")) == bytes)
    }

    // MARK: - With a signer

    /// Options of a signer that approves by itself.
    private func signer() throws -> [String] {
        let file = try sandbox.configure(
            "Signing.user-code = 1234567", "Signing.time-stamp-url = none", "Signing.client.1.name = Test Bank",
            "Signing.client.1.key-source = file:\(path("key"))",
            "Signing.client.1.operations = sign-pdf, sign-challenge", "Signing.client.1.approval = unattended",
            to: "signer.properties")
        return ["--config", file]
    }

    private func verifyByOthers(_ sourceLocation: SourceLocation = #_sourceLocation) throws {
        let verified = try sandbox.shell(
            """
            cd "$1" && openssl x509 -in signer.pem -noout -pubkey >signer.key &&
                openssl dgst -sha256 -verify signer.key -signature signature challenge &&
                { [ -d nss ] || { mkdir nss && certutil -d sql:nss -N --empty-password; }; } && pdfsig -nssdir nss signed.pdf
            """, sandbox.path)
        #expect(
            verified.status == 0 && verified.stdout.contains("Signature is Valid"), "\(verified)",
            sourceLocation: sourceLocation)
    }

    private let person = ["--user-code", "1234567"]

    private func results(_ file: String) -> [String] {
        file == "challenge"
            ? [
                "--out", path("signature"), "--certificate-out", path("signer.pem"), "--trust-anchors",
                Fixtures.path("intermediate.pem"),
            ] : ["--out", path("signed.pdf"), "--trust-anchors", Fixtures.path("root.pem")]
    }

    @Test("Requests go to requests open as files, and its replies are valid for OpenSSL and pdfsig")
    func byFile() throws {
        let signer = try signer()
        func answer(_ file: String, _ options: [String], expecting status: Int32) throws {
            let url = try send(file, options + ["--url"]).expect()
            let reply = try sandbox.certprov(
                ["requests", "open", "--input", try sandbox.write(url.stdout, to: "request")] + signer
            ).expect(status)
            try sandbox.write(reply.stdout, to: "reply")
            try send(file, ["--reply", path("reply")] + results(file)).expect(status)
        }
        try answer("challenge", request, expecting: 0)
        try answer("contract.pdf", request + person, expecting: 0)
        try verifyByOthers()
        for name in ["signature", "signer.pem"] { unlink(path(name)) }
        // A challenge is not signed again without a person.
        try answer("challenge", request, expecting: 77)
        try sandbox.write([UInt8](repeating: 0x20, count: 64) + Array("TLS 1.3".utf8), to: "challenge")
        try answer("challenge", request, expecting: 65)
        #expect(!exists("signature"))
    }

    @Test("Requests go to requests serve by its socket, each with the status of its word")
    func bySocket() throws {
        let socket = path("requests.sock")
        let service = try sandbox.start([BuiltCommand.path, "requests", "serve", "--socket", socket] + (try signer()))
        try service.waitUntil { RequestsServeTests.takesConnections(socket) }
        func expect(
            _ status: Int32, _ file: String, _ options: [String], _ sourceLocation: SourceLocation = #_sourceLocation
        ) throws {
            let output = try send(file, options + results(file) + ["--socket", socket])
            #expect(output.status == status, "\(output)", sourceLocation: sourceLocation)
        }
        try sandbox.write("another key", to: "other")
        let other = request.replacing("file:\(path("key"))", with: "file:\(path("other"))")
        try expect(77, "challenge", other)
        try expect(77, "contract.pdf", request + ["--user-code", "7654321"])
        try expect(65, "challenge", request + ["--pdf"] + person)
        try expect(0, "challenge", request)
        try expect(0, "contract.pdf", request + person)
        try verifyByOthers()
        kill(service.pid, SIGTERM)
        _ = service.wait()
    }

    // MARK: - The socket

    /// Runs a signer that answers one request with the content of a file, or not at all.
    private func withSigner(_ answer: String, _ body: (String) throws -> Void) throws {
        let script = try sandbox.write(
            """
            import socket, sys
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(sys.argv[1]); listener.listen()
            print("ready", flush=True)
            connection, _ = listener.accept()
            request = b""
            while piece := connection.recv(65536): request += piece
            open(sys.argv[2], "wb").write(request)
            if sys.argv[3] == "silence": connection.recv(1); sys.stdin.read()
            if sys.argv[3] != "nothing": connection.sendall(open(sys.argv[3], "rb").read())
            """, to: "signer.py")
        let socket = path("socket")
        unlink(socket)
        let signer = try Subprocess(["python3", script, socket, path("request"), answer])
        try #require(signer.readLine() == "ready")
        try body(socket)
        signer.stop()
    }

    @Test("A request goes to the socket, and its reply is verified")
    func socket() throws {
        try sandbox.write("sima://sign-challenge?status=success&" + (try challengeItems()), to: "reply")
        try withSigner(path("reply")) { socket in
            let output = try send("challenge", request + ["--socket", socket, "--json"])
            #expect(try output.document("SigningReply")["subject"].string?.contains("ec") == true, "\(output)")
        }
        let sent = String(decoding: try contents(path("request")), as: UTF8.self)
        #expect(sent.hasPrefix("sima://sign-challenge?challenge="), "\(sent)")
    }

    @Test("No reply, and none in time, is an empty response; without a signer, the unit to enable is named")
    func noReply() throws {
        for (answer, time) in [("nothing", "60s"), ("silence", "1s")] {
            try withSigner(answer) { socket in
                let output = try send("challenge", request + ["--socket", socket, "--timeout", time, "--json"]).expect(
                    69)
                #expect(try output.errorDocuments().first?["reason"].string == "empty-response", "\(output)")
            }
        }
        try send("challenge", request + ["--socket", path("nowhere")]).expect(
            69, stderr: "enable --now certprov-requests.socket")
        // Before it is sent: a file that cannot be written.
        try send("challenge", request + ["--socket", path("nowhere"), "--out", path("no/such")]).expect(73)
    }
}

private enum RequestLogoFile {
    static let png: [UInt8] = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]
}

extension [String] {
    fileprivate func replacing(_ one: String, with other: String) -> [String] { map { $0 == one ? other : $0 } }
}
