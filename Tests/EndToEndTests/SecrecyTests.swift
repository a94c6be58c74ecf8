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
    private func needles(of passwords: [String], key fixture: String) throws -> [String: [UInt8]] {
        var needles: [String: [UInt8]] = [:]
        for password in passwords {
            let utf8 = Array(password.utf8)
            let big = password.utf16.flatMap { [UInt8($0 >> 8), UInt8($0 & 0xff)] }
            let little = password.utf16.flatMap { [UInt8($0 & 0xff), UInt8($0 >> 8)] }
            for (form, bytes) in [("UTF-8", utf8), ("UTF-16BE", big), ("UTF-16LE", little)] {
                add(bytes, "\(password) in \(form)", to: &needles)
            }
        }
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
