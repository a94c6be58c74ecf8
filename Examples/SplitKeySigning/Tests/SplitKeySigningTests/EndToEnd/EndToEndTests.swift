import Foundation
import Glibc
import Testing

@testable import SplitKeySigning

/// The program `dvs` with the authority, and with the relying party.
@Suite(.enabled(if: Python.program != nil, Python.reason), .timeLimit(.minutes(30)))
struct EndToEndTests {
    @Test("Enrol, sign, spoil the PIN: the relying party says so, and the third wrong one blocks for good")
    func sign() async throws {
        let site = try await Site(hasRelyingParty: true)
        let host = site.host
        try await site.enrol()
        #expect(try await host("can-sign", Site.user).status == 0)
        let document = try host.write("a document", to: "document")
        let output = try await host("sign", "--yes", "--json", "--out", host["signature"], document)
        #expect(output.status == 0, "\(output) \(site.log)")
        #expect(try output.json()["status"] as? String == "ValidSignature")
        #expect(FileManager.default.fileExists(atPath: host["signature"]))
        for number in 1...3 {
            // Another file each time, or it would not be used.
            try host.write("111\(number)", to: "signing-pin")
            let wrong = try await host("sign", "--yes", "--json", document)
            let code = try wrong.json(true)["code"] as? String
            #expect(wrong.status == 77 && ["pinIncorrect", "pinLocked"].contains(code), "\(wrong)")
        }
        try host.write(Site.signingPIN, to: "signing-pin")
        let after = try await host("sign", "--yes", "--json", document)
        #expect(after.status == 77, "\(after)")
        #expect(try after.json(true)["code"] as? String == "pinLocked")
        #expect(try await site.wrong("dvs-auth").isBlocked)
    }

    @Test("Ten runs with a wrong configured PIN are one try")
    func tenRuns() async throws {
        let site = try await Site(hasRelyingParty: true)
        let host = site.host
        try await site.enrol()
        let document = try host.write("a document", to: "document")
        #expect(try await host("sign", "--yes", document).status == 0)
        try host.write("4711", to: "signing-pin")
        for _ in 0..<10 { #expect(try await host("sign", "--yes", document).status == 77) }
        #expect(try await site.wrong("dvs-auth").count == 1)
        try host.write(Site.signingPIN, to: "signing-pin")
        let output = try await host("sign", "--yes", document)
        #expect(output.status == 0, "\(output)")
        #expect(try await site.wrong("dvs-auth").count == 0)
    }

    @Test("An outage of the authority costs a right configured PIN no use")
    func outage() async throws {
        let site = try await Site(hasRelyingParty: true)
        let host = site.host
        try await site.enrol()
        let document = try host.write("a document", to: "document")
        #expect(try await host("sign", "--yes", document).status == 0)
        try await site.stopAuthority()
        for _ in 0..<3 {
            let output = try await host("sign", "--yes", document)
            #expect(output.status == 69 && output.stderr.contains("was not asked"), "\(output) \(site.log)")
        }
        try await site.startAuthority()
        let output = try await host("sign", "--yes", document)
        #expect(output.status == 0, "\(output) \(site.log)")
        #expect(try await site.wrong("dvs-auth").count == 0)
    }

    @Test("Thirty kills with a wrong configured PIN never cost more than two tries")
    func kills() async throws {
        let site = try await Site()
        let host = site.host
        try await site.enrol()
        try host.write("00000000", to: "login-pin")
        let new = try host.write("1234", to: "new")
        func challenges() -> Int { site.log.components(separatedBy: "/login/challenge").count }
        for number in 0..<30 {
            // About when the PIN's use is written down, the signature sent, and its answer there. At the end there is no more use.
            let before = challenges()
            try await host.killed(
                "change-pin", "--login", "--new-pin-source", "file:\(new)", after: .milliseconds(number),
                when: { challenges() > before })
        }
        // Wrong, or twice without an answer.
        let last = try await host("change-pin", "--login", "--new-pin-source", "file:\(new)")
        #expect([75, 77].contains(last.status), "\(last)")
        let tries = try await site.wrong("auth")
        #expect(tries.count <= 2 && !tries.isBlocked)
    }

    @Test("Codes and PINs at a terminal, and a document that is not approved")
    func terminal() async throws {
        let site = try await Site()
        let host = site.host
        let settings = try String(contentsOfFile: host["host.properties"], encoding: .utf8)
        try host.write(
            settings.split(separator: "\n").filter { !$0.contains("pin-source") }.joined(separator: "\n") + "\n",
            to: "host.properties")
        let code = try await site.tool("code", Site.user)
        let (login, signing) = (Site.loginPIN, Site.signingPIN)
        let output = try await site.atTerminal(
            ["enrol"],
            [
                ["Activation code:", code], ["New login PIN", login], ["Repeat the login PIN:", login],
                ["login PIN of \(Site.user):", login], ["New signing PIN", signing],
                ["Repeat the signing PIN:", signing],
            ])
        #expect(output.status == 0 && output.stdout.contains("can sign"), "\(output)")
        #expect(!output.stdout.contains(login) && !output.stdout.contains(code), "\(output)")
        let document = try host.write("a document", to: "document")
        let declined = try await site.atTerminal(["sign", "--offline", document], [["Sign this document?", "n"]])
        #expect(declined.status == 77 && !declined.stdout.contains("PIN of"), "\(declined)")
        let signed = try await site.atTerminal(
            ["sign", "--offline", "--out", host["offline.json"], document],
            [["Sign this document?", "y"], ["signing PIN of", signing]])
        #expect(signed.status == 0 && signed.stdout.contains("can tell whether the PIN was right"), "\(signed)")
        // As the README has it: only the verifier can tell.
        let verified = try await site.verifyOffline(host["offline.json"])
        let digest = try await host.run(["sha256sum", document]).stdout.prefix(64)
        #expect(verified["hash"] as? String == String(digest), "\(verified)")
        let wrong = try await site.atTerminal(["change-pin", "--login"], [["login PIN of", "11111111"]])
        #expect(wrong.status == 77 && wrong.stdout.contains("[pinIncorrect]"), "\(wrong)")
        let changed = try await site.atTerminal(
            ["change-pin", "--login"],
            [["login PIN of", login], ["New login PIN", "2580"], ["Repeat the login PIN", "2580"]])
        #expect(changed.status == 0, "\(changed)")
        #expect(try await site.wrong("auth").count == 0)
    }

    @Test("Neither the trace log nor the state has a PIN, a code or a session")
    func log() async throws {
        let site = try await Site()
        let host = site.host
        try host.write(try await site.tool("code", Site.user), to: "code")
        let code = try String(contentsOfFile: host["code"], encoding: .utf8)
        let new = try host.write("86420975", to: "new")
        let enrolled = try await host("enrol", "-v", "--code-source", "file:" + host["code"])
        let changed = try await host("change-pin", "-v", "--new-pin-source", "file:\(new)")
        #expect(enrolled.status == 0 && changed.status == 0, "\(enrolled) \(changed)")
        let authority = try #require(URL(string: site.url))
        for text in [
            "host=\(authority.host() ?? ""):\(authority.port ?? 0) method=POST path=/rps/v2/dvsregister status=200",
            "pin-source=file:\(host["login-pin"]) use=login user=\(Site.user)", "path=/share status=200",
        ] {
            #expect(enrolled.stderr.contains(text), "\(text): \(enrolled)")
        }
        #expect(changed.stderr.contains("pin-source=file:\(host["signing-pin"]) use=signing"), "\(changed)")
        #expect(!enrolled.stderr.contains("ticket"), "\(enrolled)")
        // Without the option, nothing is logged.
        #expect(try await !host("login").stderr.contains("debug: "))
        var places = [enrolled.stderr, enrolled.stdout, changed.stderr, changed.stdout].map { Array($0.utf8) }
        let files = try #require(
            FileManager.default.enumerator(at: URL(filePath: host["state"]), includingPropertiesForKeys: nil))
        for case let file as URL in files {
            if let content = try? Data(contentsOf: file) { places.append(Array(content)) }
        }
        #expect(places.count > 6)
        for secret in [Site.loginPIN, "86420975", code] {
            for place in places {
                #expect(!place.contains(Array(secret.utf8)))
                #expect(!place.contains(Array(Data(secret.utf8).base64EncodedString().dropLast(4).utf8)))
            }
        }
    }

    @Test("A code is used for its user, whoever has begun before; the same code goes on after a break")
    func severalEnrolments() async throws {
        let site = try await Site()
        let host = site.host
        let bob = "bob@example.com"
        // The second round is of a user with keys.
        for round in 0..<2 {
            try host.write(try await site.tool("code", Site.user), to: "code")
            try host.write("12", to: "signing-pin")
            let broken = try await host("enrol", "--code-source", "file:" + host["code"])
            #expect(broken.status == 65, "\(broken)")
            try host.write(Site.signingPIN, to: "signing-pin")
            if round == 0 {
                try host.write(try await site.tool("code", bob), to: "other")
                let other = try await host("enrol", "--code-source", "file:" + host["other"])
                #expect(other.status == 0 && other.stdout == "\(bob) can sign.\n", "\(other)")
                #expect(try await host("can-sign", Site.user).status == 1)
            }
            let again = try await host("enrol", "--code-source", "file:" + host["code"])
            #expect(again.status == 0 && again.stdout == "\(Site.user) can sign.\n", "\(again)")
            #expect(again.stderr.contains("The login key of \(Site.user) is there"), "\(again)")
        }
        let used = try await host("enrol", "--code-source", "file:" + host["code"])
        #expect(used.status == 77, "\(used)")
    }

    @Test("An enrolment that goes on with a blocked login key takes a new code")
    func blockedLoginKey() async throws {
        let site = try await Site()
        let host = site.host
        try await site.enrol()
        // As if it had ended before the signing key.
        let name = SplitKeyStore.name(site.url, Site.user, .signing)
        let files = FileManager.default.enumerator(atPath: host["state"])
        let record = try #require(files?.compactMap { $0 as? String }.first { $0.hasSuffix(name) })
        try FileManager.default.removeItem(atPath: host["state"] + "/" + record)
        for number in 1...3 {
            try host.write("1111111\(number)", to: "login-pin")
            #expect(try await host("change-pin", "--login").status == 77)
        }
        #expect(try await site.wrong("auth").isBlocked)
        // The former code is used up.
        #expect(try await host("enrol", "--code-source", "file:" + host["code"]).status == 77)
        try await site.enrol()
        #expect(try await host("can-sign", Site.user).status == 0)
    }

    @Test("A pairing helper that fails, and one that is not there")
    func helper() async throws {
        let site = try await Site()
        let host = site.host
        let settings = try String(contentsOfFile: host["host.properties"], encoding: .utf8)
        try host.write(try await site.tool("code", Site.user), to: "code")
        for helper in ["/bin/false", "/bin/cat", "/nothing"] {
            let other = settings.replacing("\(Python.package)/pairing-helper", with: helper)
            try host.write(other, to: "host.properties")
            let output = try await host("enrol", "--code-source", "file:" + host["code"])
            #expect(output.status == 69 && output.stderr.contains("SplitKey.pairing-helper"), "\(output)")
            #expect(!output.stderr.contains(".."), "\(output)")
        }
        let failing = try host.write("#!/bin/sh\necho '{\"error\": \"it needs pyblst\"}'\nexit 1\n", to: "helper")
        try #require(chmod(failing, 0o700) == 0)
        try host.write(settings.replacing("\(Python.package)/pairing-helper", with: failing), to: "host.properties")
        let output = try await host("enrol", "--code-source", "file:" + host["code"])
        #expect(output.status == 69 && output.stderr.contains("it needs pyblst"), "\(output)")
    }
}
