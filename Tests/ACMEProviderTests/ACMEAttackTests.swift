import CertificateProviding
import Enrolment
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// A server that wants more than a client may give, or answers without measure.
@Suite struct ACMEAttackTests {
    private let person = NoUserInteraction()

    @Test(
        "A proof is given for the names that were ordered only: others are not passed to the hook",
        arguments: ["victim.example", "host.example\nupdate delete example", "example", "a.host.example", ""],
        ["dns-01", "http-01"])
    func aProofThatWasNotOrdered(name: String, challenge: String) async throws {
        let host = try Host()
        let log = host.directory["hook.log"]
        let hook = try host.directory.install("hook", Array("#!/bin/sh\necho \"$@\" >> \(log)\n".utf8))
        host.server.behave { $0.foreignName = name }
        let changes: [String: String?] =
            challenge == "dns-01" ? ["challenge": "dns-01", "http-root": nil, "dns-hook": hook] : [:]
        let error = try #require(await failure { _ = try await host.provider(changes).getCertificate(person) })
        #expect(error.code == .protocolError && error.message.contains("not among 'identifiers'"), "\(error)")
        #expect(!error.message.contains("\n"))
        #expect(!FileManager.default.fileExists(atPath: log) && host.challenges.isEmpty)
        #expect(host.server.count(of: "chall") == 0)
        // The order is gone on with.
        host.server.behave { $0.foreignName = nil }
        if challenge == "http-01" { _ = try await host.provider().getCertificate(person) }
        #expect(host.server.count(of: "newOrder") == 1)
    }

    @Test("The hook gets the name as it is configured, however the server writes it")
    func theSpellingOfTheHook() async throws {
        let host = try Host()
        let log = host.directory["hook.log"]
        let hook = try host.directory.install("hook", Array("#!/bin/sh\necho \"$1 $2\" >> \(log)\n".utf8))
        host.server.behave {
            $0.foreignName = "HOST.Example"
            $0.refusal = "dns"
        }
        _ = await failure {
            _ = try await host.provider(["challenge": "dns-01", "http-root": nil, "dns-hook": hook]).getCertificate(
                person)
        }
        let name = "_acme-challenge.host.example"
        #expect(try String(contentsOfFile: log, encoding: .utf8) == "add \(name)\nremove \(name)\n")
    }

    @Test("A name in another form is the same name")
    func otherForms() throws {
        func isProven(_ identifier: String, _ type: String, _ value: String) throws -> Bool {
            let text =
                #"{"identifier": {"type": "\#(type)", "value": "\#(value)"}, "status": "pending", "challenges": []}"#
            let authorization = try JSONDecoder().decode(ACMEAuthorization.self, from: Data(text.utf8))
            return try #require(try ACMEIdentifier.list(identifier).first).isProven(by: authorization)
        }
        #expect(try isProven("dns:Host.example", "dns", "HOST.example"))
        #expect(try isProven("dns:*.host.example", "dns", "host.example"))
        #expect(try isProven("dns:*.host.example", "dns", "*.host.example"))
        #expect(try !isProven("dns:host.example", "dns", "*.host.example"))
        #expect(try isProven("ip:2001:db8::1", "ip", "2001:0DB8:0:0::1"))
        // Letters that Swift takes for the same, or that become the same in lower case.
        #expect(try !isProven("dns:kiosk.example", "dns", "\u{212a}iosk.example"))
        #expect(try !isProven("dns:xn--a.example", "dns", "xn--\u{ff41}.example"))
        #expect(try !isProven("permanent-identifier:K", "permanent-identifier", "\u{212a}"))
        #expect(try !isProven("ip:192.0.2.1", "dns", "192.0.2.1"))
        #expect(try isProven("permanent-identifier:A", "permanent-identifier", "A"))
        #expect(try !isProven("permanent-identifier:A", "permanent-identifier", "a"))
    }

    @Test("An order with thousands of authorisations is refused before they are read")
    func thousandsOfAuthorisations() async throws {
        let host = try Host()
        host.server.behave { $0.authorizationCount = 5000 }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .protocolError && error.message.contains("wants 5000 proofs"), "\(error)")
        #expect(host.server.count(of: "authz") == 0)
    }

    @Test("A server that shows another challenge at each look is given up, and nothing is left behind")
    func changingChallenges() async throws {
        let host = try Host()
        host.server.behave {
            $0.changesChallenges = true
            $0.looks = 10_000
        }
        #expect(await code { _ = try await host.provider(["timeout": "20"]).getCertificate(person) } == .pending)
        #expect(host.challenges.isEmpty && !host.records.contains { $0.hasPrefix("challenges-") })
        host.server.behave {
            $0.changesChallenges = false
            $0.looks = 0
        }
        host.server.state.withLock { $0.orders = [:] }
        _ = try await host.provider().getCertificate(person)
    }

    @Test(
        "A delay without measure ends the run with the time to come back",
        arguments: ["999999999999999999999999", "315360000", "Fri, 31 Dec 9999 23:59:59 GMT"])
    func endlessDelays(delay: String) async throws {
        let host = try Host()
        host.server.behave {
            $0.retryAfter = delay
            $0.orderLooks = 5
        }
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code == .pending && error.message.contains("ask again after 20"), "\(error)")
        #expect(host.challenges.isEmpty)
    }

    @Test("A delay that is none is not used", arguments: ["-5", "", "soon", "1e9", "0"])
    func wrongDelays(delay: String) async throws {
        let host = try Host()
        host.server.behave {
            $0.retryAfter = delay
            $0.looks = 2
        }
        _ = try await host.provider().getCertificate(person)
    }

    private static let resources = ["dir", "newAccount", "newOrder", "order", "authz", "finalize"]
    private static let bodies = [
        String(repeating: "[", count: 400_000), String(repeating: #"{"a":"#, count: 100_000),
        #"{"status": "pending", "#.appending(String(repeating: " ", count: 2_000_000)),
        #"{"status": "valid", "status": "pending", "status": "\u001b[2J"}"#, #"{"status": 1e999999}"#, "\"", "null",
        "\u{0}",
    ]

    @Test(
        "JSON that is deep, large, ambiguous or none is an error, and the next run succeeds", arguments: resources,
        bodies.indices)
    func strangeJSON(resource: String, body: Int) async throws {
        let host = try Host()
        host.server.fail(resource, .body(Self.bodies[body], status: resource == "newOrder" ? 201 : 200))
        let error = try #require(await failure { _ = try await host.provider().getCertificate(person) })
        #expect(error.code != .internal && error.message.utf8.count < 2000, "\(error)")
        #expect(!error.message.contains("\u{1b}"))
        _ = try await host.provider().getCertificate(person)
        // The server may have looked again when the first run had removed its answer.
        #expect(host.server.mistakes.allSatisfy { $0.hasPrefix("no right answer") })
    }

    @Test("The texts of a problem are shown without control characters, and not at length")
    func textsOfAProblem() throws {
        func advice(_ kind: String) throws -> String {
            let long = String(repeating: "x", count: 100_000)
            let text = """
                {"type": "\(ACMEProblem.namespace)\(kind)", "algorithms": ["\\u001b[2J", "\(long)"], "instance": "\\u001b[2J\(long)"}
                """
            return try #require(try JSONDecoder().decode(ACMEProblem.self, from: Data(text.utf8)).advice)
        }
        for kind in ["badSignatureAlgorithm", "userActionRequired"] {
            let text = try advice(kind)
            #expect(!text.contains("\u{1b}") && text.count < 1000, "\(text)")
        }
    }

    @Test("The preferred root is named by its subject, in any order and spacing, or by its common name")
    func thePreferredRoot() throws {
        let pem = try Subprocess.run([
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
            "/dev/null",
            "-subj", "/C=US/O=Example Trust/CN=Root X1",
        ])
        let chain = try X509Certificate.certificates(pem: String(decoding: pem, as: UTF8.self))
        for name in [
            "Root X1", "root x1", "CN=Root X1,O=Example Trust,C=US", "C = US, O = Example Trust, CN = Root X1",
            "C=US, O=Example Trust, CN=Root X1",
        ] {
            #expect(chain.leads(to: name), "\(name)")
        }
        #expect(!chain.leads(to: "CN=Root X1") && !chain.leads(to: "Root X2") && !chain.leads(to: ""))
    }
}
