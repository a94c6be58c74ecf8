import Foundation
import Glibc
import TestSupport
import Testing

/// No output, whatever happens, holds a password or a private key.
@Suite struct SecrecyTests {
    private static let wrong = "wr0ng-\u{fc}-98217364"
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// The bytes that must not be seen, by the name under which they are reported.
    private func needles(of passwords: [String]) -> [String: [UInt8]] {
        var needles: [String: [UInt8]] = [:]
        for password in passwords {
            let utf8 = Array(password.utf8)
            let big = password.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xff)] }
            let little = password.utf16.flatMap { [UInt8($0 & 0xff), UInt8($0 >> 8)] }
            for (form, bytes) in [("UTF-8", utf8), ("UTF-16BE", big), ("UTF-16LE", little)] {
                add(bytes, "\(password) in \(form)", to: &needles)
            }
        }
        return needles
    }

    private func needles(of passwords: [String], key fixture: String) throws -> [String: [UInt8]] {
        var needles = needles(of: passwords)
        let pem = String(decoding: try contents(Fixtures.path("\(fixture).key")), as: UTF8.self)
        // All but the first line, which begins as every key of the kind does.
        for (index, line) in pem.split(separator: "\n").dropFirst(2).dropLast().enumerated() {
            needles["line \(index) of the key"] = Array(line.utf8)
        }
        let numbers = try sandbox.shell(
            #"openssl pkey -in "$1" -noout -text | sed -n '/^pri\(v\|vateExponent\):/,/^\(pub\|prime1\):/p' | grep '^ '"#,
            Fixtures.path("\(fixture).key"))
        let hex = numbers.stdout.filter(\.isHexDigit).drop { $0 == "0" }
        let digits = hex.count % 2 == 0 ? Array(hex) : ["0"] + Array(hex)
        let scalar = stride(from: 0, to: digits.count, by: 2).compactMap {
            UInt8(String(digits[$0...($0 + 1)]), radix: 16)
        }
        try #require(scalar.count >= 30, "\(numbers)")
        // Base64 depends on where in its bytes the number begins; the key's lines stand for that.
        add(scalar, "private number", to: &needles)
        return needles
    }

    private func add(_ bytes: [UInt8], _ name: String, to needles: inout [String: [UInt8]]) {
        let hex = bytes.map { String(format: "%02x", $0) }.joined()
        needles[name] = bytes
        needles["\(name), hex"] = Array(hex.utf8)
        needles["\(name), upper-case hex"] = Array(hex.uppercased().utf8)
        // Without the end, which depends on what follows.
        needles["\(name), base64"] = Array(Data(bytes.prefix(bytes.count / 3 * 3)).base64EncodedString().utf8)
    }

    private func found(_ needles: [String: [UInt8]], in bytes: [UInt8]) -> [String] {
        needles.filter { contains(bytes, $0.value) }.keys.sorted()
    }

    private func contains(_ haystack: [UInt8], _ needle: [UInt8]) -> Bool {
        haystack.withUnsafeBytes { bytes in
            guard var place = bytes.baseAddress else { return false }
            let end = place + bytes.count
            while end - place >= needle.count, let start = memchr(place, Int32(needle[0]), end - place) {
                place = UnsafeRawPointer(start)
                if end - place >= needle.count, memcmp(place, needle, needle.count) == 0 { return true }
                place += 1
            }
            return false
        }
    }

    static let commands = [
        ["list"], ["fetch"], ["fetch", "--force"], ["fetch", "--force", "--out", "OUT"],
        ["fetch", "--force", "--out", "OUT", "--export-key"], ["explain"], ["check"], ["providers"], ["delete"],
        ["delete", "--yes"], ["list", "--set", "alias=nosuch"], ["fetch", "--set", "alias=nosuch"],
        ["fetch", "--set", "password=\(Fixtures.password)"], ["list", "--set", "password=\(Fixtures.password)"],
        ["list", "--set", "password-source=\(Fixtures.password)"], ["list", "--set", "\(Fixtures.password)"],
    ]

    @Test(arguments: commands, ["ec", "rsa"]) func noOutputHoldsASecret(command: [String], fixture: String) throws {
        let needles = try needles(of: [Fixtures.password, Self.wrong], key: fixture)
        // The search finds the bytes if they are there.
        #expect(!found(needles, in: try contents(Fixtures.path("\(fixture).key"))).isEmpty)
        let holdsSecretItself = command.contains { $0.contains(Fixtures.password) }
        let words = command.map { $0 == "OUT" ? sandbox.path + "/out" : $0 }
        let file = try sandbox.write(Self.wrong + "\n", to: "wrong")
        var sampled = 0
        for password in ["env:P12_PASSWORD", "env:WRONG", "file:\(file)", "none"] {
            var options = ["--provider", "pkcs12", "--set", "path=\(Fixtures.path("\(fixture).p12"))"]
            if password != "none" && !words.contains(where: { $0.hasPrefix("password-source") }) {
                options += ["--set", "password-source=\(password)"]
            }
            for more in [["-v", "-v"], ["--json", "-v", "-v"]] {
                let process = try sandbox.start(
                    [BuiltCommand.path] + words + options + more, with: ["WRONG": Self.wrong])
                var seen: Set<[UInt8]> = []
                repeat {
                    if let now = try? contents("/proc/\(process.pid)/cmdline") { seen.insert(now) }
                    usleep(500)
                } while !process.hasEnded
                let arguments = Array(seen.joined())
                if !arguments.isEmpty { sampled += 1 }
                let output = process.wait()
                #expect(output.status != nil, "\(output)")
                if holdsSecretItself { #expect(output.status == 78 || output.status == 64, "\(output)") }
                #expect(found(needles, in: output.stdoutBytes).isEmpty, "stdout: \(words) \(more)")
                #expect(found(needles, in: output.stderrBytes).isEmpty, "stderr: \(words) \(more)")
                if !holdsSecretItself { #expect(found(needles, in: arguments).isEmpty, "\(words) \(more)") }
            }
        }
        // On a busy machine a process can end before it is looked at; hardly all eight of them.
        #expect(sampled > 0)
        // Neither does the store, nor any file but those that --export-key is for.
        for name in try FileManager.default.subpathsOfDirectory(atPath: sandbox.path) {
            let path = sandbox.path + "/" + name
            guard name != "wrong", !["key.pem", "identity.pem"].contains(URL(filePath: name).lastPathComponent),
                status(path)?.isRegular == true
            else { continue }
            #expect(found(needles, in: try contents(path)).isEmpty, "\(name)")
        }
    }

    /// The kinds of sources of secrets, but for a person.
    enum Source: Int, CaseIterable {
        case file
        case environment
        case descriptor
        case credential

        /// The value of a property file, for a secret in a file of a directory.
        func value(_ name: String, _ number: Int, in directory: String) -> String {
            switch self {
            case .file: "file:\(directory)/\(name)"
            case .environment: "env:SECRET_\(name)"
            case .descriptor: "fd:\(number)"
            case .credential: "systemd:\(name)"
            }
        }
    }

    @Test(
        "No log, event, metric, status or error has the secret of a source, right or wrong", arguments: Source.allCases)
    func noLogHasASecret(source: Source) async throws {
        let servers = [try await ESTServer.start("--auth", "basic"), try await ESTServer.start("--auth", "oauth")]
        let token = try SoftToken(in: sandbox, "host", pin: "pin-4711-0815")
        let (secrets, etc) = (sandbox.path + "/secrets", sandbox.path + "/etc")
        for name in [secrets, etc, sandbox.path + "/run"] { mkdir(name, 0o700) }
        let right = [
            "web": Fixtures.password, "est": ESTServer.password, "oauth": "estsecret", "token": "pin-4711-0815",
        ]
        let names = right.keys.sorted()
        func value(_ name: String) -> String {
            source.value(name, 5 + (names.firstIndex(of: name) ?? 0), in: secrets)
        }
        func enrolment(_ server: ESTServer, _ more: String) -> String {
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)
            CertificateProvider.mdm.trust-anchors = \(server.directory["ca.pem"])
            CertificateProvider.mdm.subject = CN=host
            \(more)

            """
        }
        _ = try sandbox.configure("Files.directory = \(sandbox.path)/files", to: "etc/web.properties")
        try sandbox.write(
            try String(contentsOfFile: etc + "/web.properties", encoding: .utf8).replacing(
                "env:P12_PASSWORD", with: value("web")), to: "etc/web.properties")
        let basic = "username = \(ESTServer.user)\nCertificateProvider.mdm.password-source = \(value("est"))"
        try sandbox.write(enrolment(servers[0], "CertificateProvider.mdm.\(basic)"), to: "etc/est.properties")
        let oauth = """
            CertificateProvider.mdm.token-url = https://localhost:\(servers[1].port)/token
            CertificateProvider.mdm.client-id = estclient
            CertificateProvider.mdm.client-secret-source = \(value("oauth"))
            """
        try sandbox.write(enrolment(servers[1], oauth), to: "etc/oauth.properties")
        let keys = """
            CertificateProvider.mdm.username = \(ESTServer.user)
            CertificateProvider.mdm.password-source = file:\(sandbox.path)/password
            CertificateProvider.mdm.key = pkcs11:token=host?module-path=\(SoftToken.library)
            CertificateProvider.mdm.key-pin-source = \(value("token"))
            CertificateProvider.mdm.subject-alternative-names = dns:token.example
            """
        try sandbox.write(ESTServer.password, to: "password")
        try sandbox.write(enrolment(servers[0], keys), to: "etc/token.properties")
        let wrong = right.mapValues { _ in Self.wrong }
        var needles = needles(of: Array(right.values) + [Self.wrong])
        for password in [ESTServer.password, Self.wrong] {
            needles["the header with \(password)"] = Array(
                Data("\(ESTServer.user):\(password)".utf8).base64EncodedString().utf8)
        }

        let log = sandbox.path + "/log"
        for (round, passwords) in [right, wrong].enumerated() {
            var variables = token.variables.filter { $0.key != "PIN" }
            variables["RUNTIME_DIRECTORY"] = sandbox.path + "/run"
            variables["P12_PASSWORD"] = ""
            // Else the identity of the first round is there.
            variables["XDG_STATE_HOME"] = "\(sandbox.path)/state/\(round)"
            if source == .credential { variables["CREDENTIALS_DIRECTORY"] = secrets }
            for (name, password) in passwords {
                try sandbox.write(password, to: "secrets/" + name)
                if source == .environment { variables["SECRET_" + name] = password }
            }
            let descriptors = names.enumerated().map { "\(5 + $0)<\(secrets)/\($1)" }.joined(separator: " ")
            let entrance = [
                "sh", "-c", (source == .descriptor ? "exec \(descriptors); " : "") + "exec \"$@\" >>\(log) 2>&1", "sh",
            ]
            @discardableResult
            func run(_ format: String, _ arguments: String...) throws -> Output {
                let options = ["-v", "-v", "--log-format", format]
                return try sandbox.run(entrance + [BuiltCommand.path] + arguments + options, with: variables)
            }
            for name in names {
                let file = "\(etc)/\(name).properties"
                try run("text", "check", "--config", file)
                for format in ["text", "json"] {
                    let fetch = try run(format, "fetch", "--force", "--config", file)
                    #expect(
                        (fetch.status == 0) == (round == 0),
                        "\(name): \((try? String(contentsOfFile: log, encoding: .utf8)) ?? "")")
                }
            }
            let service = try sandbox.start(
                entrance + [BuiltCommand.path, "serve", "--directory", etc, "-v", "-v", "--log-format", "json"],
                with: variables)
            try service.waitUntil {
                let status = try sandbox.certprov("serve", "status", "--json", with: variables)
                let items = try? JSON(parsing: status.stdout)["items"].array
                return items?.count == 4 && items?.allSatisfy { $0["state"].string != "begins" } == true
            }
            try run("json", "serve", "status")
            try run("json", "metrics", "--directory", etc)
            service.send(SIGTERM)
            service.wait()
            try run("json", "metrics", "--directory", etc)
        }
        let seen = try contents(log)
        #expect(found(needles, in: seen).isEmpty)
        let text = String(decoding: seen, as: UTF8.self)
        for word in [#""event":"issued""#, #""event":"refused""#, "certprov_identity_errors", " event=issued "] {
            #expect(text.contains(word), "\(word)")
        }
    }

    @Test(
        "A host variable shows no file of state, of credentials, or of one user",
        arguments: ["state/certprov", "credentials", "home"])
    func noHostVariableHasASecret(place: String) throws {
        let (secret, directory) = ("hunter2-5f1c", "\(sandbox.path)/\(place)")
        for name in [directory, sandbox.path + "/etc"] { mkdir(name, 0o755) }
        try sandbox.write(secret, to: "\(place)/name", mode: place == "home" ? 0o640 : 0o644)
        try sandbox.write("x", to: "password")
        let file = try sandbox.write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:1
            CertificateProvider.mdm.username = u
            CertificateProvider.mdm.password-source = file:\(sandbox.path)/password
            CertificateProvider.mdm.subject = CN=%{file:\(directory)/name}

            """, to: "etc/web.properties")
        let variables = ["CREDENTIALS_DIRECTORY": sandbox.path + "/credentials", "RUNTIME_DIRECTORY": sandbox.path]
        for command in [
            ["check", "--config", file], ["explain", "--config", file], ["fetch", "--config", file],
            ["metrics", "--directory", sandbox.path + "/etc"], ["serve", "--directory", sandbox.path + "/etc"],
        ] {
            let output = try sandbox.certprov(command + ["-v", "-v"], with: variables)
            #expect(
                output.description.contains("web.properties:6: ") && !output.description.contains(secret), "\(output)")
            #expect(command[0] == "metrics" || output.status == 78, "\(output)")
        }
    }

    /// A line that is not a setting may be a secret that got there by mistake, so that only its number is named.
    @Test(arguments: [
        "hunter2-5f1c", "hunter2-5f1c and more", "hunter2-5f1c=", "hunter2-5f1c==", "\"hunter2-5f1c\": 1",
        "<string>hunter2-5f1c</string>",
    ])
    func aStraySecretIsNotRepeated(line: String) throws {
        let path = try sandbox.configure(line, to: "clienthub.properties")
        for command in ["list", "fetch", "explain", "check"] {
            for more in [[], ["--json"]] {
                let output = try sandbox.certprov([command, "--config", path] + more)
                #expect(output.status == 0 && !output.description.contains("hunter2"), "\(output)")
                #expect(output.description.contains("\(path):4: "), "\(output)")
            }
        }
    }

    @Test func aPropertyListOfAnotherNameIsNotReadAsProperties() throws {
        let secret = "hunter2-5f1c"
        let text = FileForm.plist.text([("Host", "a"), ("Password", secret)])
        let path = try sandbox.write(text, to: "clienthub.properties")
        for command in ["list", "fetch", "explain", "check"] {
            let output = try sandbox.certprov([command, "--config", path])
            #expect(output.status == 78 && !output.description.contains(secret), "\(output)")
            #expect(output.description.contains("\(path):1: This is a property list; name it .plist."), "\(output)")
        }
    }

    @Test(arguments: [
        "CertificateProvider.pkcs12.password", "CertificateProvider.pkcs12.password-source",
        "CertificateProvider.password", "CertificateProvider", "UserCreationPolicy", "Port", "HTTPS",
        "certificateprovider.pkcs12.password",
    ])
    func aSecretInTheWrongPlaceIsNotRepeated(key: String) throws {
        let secret = "hunter2-5f1c"
        for form in FileForm.allCases {
            let path = try sandbox.write(
                form.text(
                    [("Host", "a"), (key, secret)]
                        + (key == "CertificateProvider" ? [] : [("CertificateProvider", "pkcs12")])
                        + (key.hasSuffix("password-source") ? [("CertificateProvider.pkcs12.path", "/x")] : [])),
                to: "clienthub.\(form.rawValue)")
            for command in ["list", "fetch", "explain", "check"] {
                for more in [[], ["--json", "-v", "-v"]] {
                    let output = try sandbox.certprov([command, "--config", path] + more).expect(78)
                    #expect(!output.description.contains(secret), "\(output)")
                    #expect(output.description.contains("\(path):"), "\(output)")
                }
            }
        }
    }
}
