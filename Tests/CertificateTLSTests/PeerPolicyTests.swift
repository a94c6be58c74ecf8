import CertificateProviding
import CoreMetrics
import Foundation
import TestSupport
import Testing

@testable import CertificateTLS

@Suite struct PeerPolicyTests {
    struct Case: Sendable, CustomTestStringConvertible {
        var pattern: String
        var matching: [AlternativeName]
        var others: [AlternativeName]
        var testDescription: String { pattern }

        init(_ pattern: String, _ matching: [AlternativeName], not others: [AlternativeName]) {
            (self.pattern, self.matching, self.others) = (pattern, matching, others)
        }
    }

    static let cases: [Case] = [
        Case(
            "dns:web.example", [.dns("web.example"), .dns("WEB.Example"), .dns("web.example.")],
            not: [
                .dns("xweb.example"), .dns("a.web.example"), .dns("web.example.org"), .dns("*.example"),
                .dns("web..example"),
                .dns("web.example.."), .dns(""), .uri("web.example"), .email("web.example"), .dns("w\u{435}b.example"),
                .dns("web.example\0"),
            ]),
        Case("DNS:WEB.Example.", [.dns("web.example")], not: [.dns("web")]),
        Case(
            "dns:*.clients.example",
            [.dns("a.clients.example"), .dns("A.CLIENTS.example."), .dns("*.clients.example")],
            not: [
                .dns("clients.example"), .dns(".clients.example"), .dns("a.b.clients.example"),
                .dns("aclients.example"),
                .dns("a.clients.example.org"), .dns("evil.com\0.clients.example"), .dns("a b.clients.example"),
            ]),
        Case(
            "dns:**.example", [.dns("a.example"), .dns("a.b.example")],
            not: [.dns("example"), .dns(".example"), .dns("a..example"), .dns("a.b\0.example")]),
        Case(
            "ip:192.0.2.7", [.ip([192, 0, 2, 7])],
            not: [.ip([192, 0, 2, 8]), .ip([192, 0, 2, 7, 0]), .dns("192.0.2.7"), .email("192.0.2.7")]),
        Case(
            "IP:2001:0DB8:0:0::7", [.ip([0x20, 1, 0x0d, 0xb8] + [UInt8](repeating: 0, count: 11) + [7])],
            not: [.ip([0x20, 1, 0x0d, 0xb8]), .uri("ip:2001:db8::7")]),
        Case("dns:a.*.example", [.dns("a.b.example")], not: [.dns("a.example"), .dns("a.b.c.example")]),
        Case(
            "uri:spiffe://example.org/ns/prod/*",
            [.uri("spiffe://example.org/ns/prod/web"), .uri("SPIFFE://Example.ORG/ns/prod/web")],
            not: [
                .uri("spiffe://example.org/ns/prod"), .uri("spiffe://example.org/ns/prod/"),
                .uri("spiffe://example.org/ns/prod/web/x"), .uri("spiffe://example.org/ns/Prod/web"),
                .uri("spiffe://example.org/ns/prod//web"), .uri("spiffe://example.org/ns/prod/.."),
                .uri("spiffe://example.org/ns/prod/."), .uri("spiffe://example.org/ns/prod/a%2fb"),
                .uri("spiffe://example.org/ns/prod/web?x"), .uri("spiffe://example.org/ns/prod/web#x"),
                .uri("spiffe://example.org.evil.example/ns/prod/web"), .uri("spiffe://example.org:1/ns/prod/web"),
                .uri("spiffe://user@example.org/ns/prod/web"), .uri("https://example.org/ns/prod/web"),
                .uri("spiffe:/example.org/ns/prod/web"), .uri("spiffe://example.org/ns/prod/w\u{301}"),
                .uri("spiffe://example.org/ns%2fprod/web"), .uri("spiffe://example.org\\ns\\prod\\web"),
                .uri("spiffe://example.org/ns/x/../prod/web"), .dns("spiffe://example.org/ns/prod/web"),
            ]),
        Case(
            "uri:spiffe://example.org/**", [.uri("spiffe://example.org/a"), .uri("spiffe://example.org/a/b/c")],
            not: [
                .uri("spiffe://example.org"), .uri("spiffe://example.org/"), .uri("spiffe://example.org/a//b"),
                .uri("spiffe://example.org/a/../b"), .uri("spiffe://example.com/a"),
                .uri("spiffe://example.org/a/%2e%2e"),
            ]),
        Case(
            "uri:spiffe://example.org/*/web", [.uri("spiffe://example.org/x/web")],
            not: [.uri("spiffe://example.org/web")]),
        Case("uri:spiffe://example.org", [.uri("spiffe://example.org")], not: [.uri("spiffe://example.org/a")]),
        Case("uri:https://a.example/x%2Fy", [.uri("https://a.example/x%2Fy")], not: [.uri("https://a.example/x/y")]),
        Case(
            "uri:urn:uuid:F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
            [.uri("URN:uuid:F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6")],
            not: [.uri("urn:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"), .uri("urn:uuid:")]),
        Case(
            "email:alice@example.com", [.email("alice@EXAMPLE.com")],
            not: [
                .email("Alice@example.com"), .email("alice@a.example.com"), .upn("alice@example.com"), .email("alice"),
            ]),
        Case(
            "email:*@example.com", [.email("alice@example.com"), .email("a+b.c@example.com")],
            not: [
                .email("@example.com"), .email("example.com"), .email("alice@example.com.evil.example"),
                .email("\"a@b\"@example.com"), .email("alice@evil.example@example.com"),
                .email("alice@evil.example\0@example.com"), .email("a b@example.com"), .email("a\n@example.com"),
                .email("a\\@example.com"),
            ]),
        Case("email:\"a@b\"@example.com", [.email("\"a@b\"@example.com")], not: [.email("a@b@example.com")]),
        Case(
            "upn:*@*.example", [.upn("Alice@CORP.example"), .upn("J\u{fc}rgen@corp.example")],
            not: [
                .upn("alice@example"), .email("alice@corp.example"), .upn("alice@evil.org@corp.example"),
                .upn("a\u{a0}b@corp.example"), .upn("a\u{85}@corp.example"),
            ]),
        Case("upn:Alice@corp.example", [.upn("aLICE@corp.example")], not: [.upn("bob@corp.example")]),
    ]

    @Test("A pattern matches whole names of its kind", arguments: cases)
    func aPatternMatchesWholeNames(one: Case) throws {
        let pattern = try PeerPattern(one.pattern)
        for name in one.matching { #expect(pattern.matches(name), "\(name)") }
        for name in one.others { #expect(!pattern.matches(name), "\(name)") }
    }

    @Test("One of several names of a leaf is enough")
    func oneOfSeveralNames() throws {
        let leaf = try TestAuthority.leaf(
            "peer", dnsNames: ["first.example", "web.example"], uris: ["spiffe://example.org/a"])
        let peer = try #require(TLSPeer(chain: [leaf]))
        for pattern in ["dns:web.example", "uri:spiffe://example.org/a", "dns:first.example"] {
            #expect(try PeerPattern(pattern).matches(peer))
        }
        for pattern in ["dns:peer", "cn:web.example", "uri:spiffe://example.org/b", "email:*@web.example"] {
            #expect(try !PeerPattern(pattern).matches(peer))
        }
        #expect(try !PeerPattern("dns:*.example").matches(#require(TLSPeer(chain: [TestAuthority.leaf("x.example")]))))
    }

    @Test("Names of the subject are compared as a whole, without the case of ASCII letters")
    func namesOfTheSubject() throws {
        let peer = try #require(
            TLSPeer(chain: [try TestAuthority.leaf("Backup K\u{212a}", units: ["Ops", "B\u{fc}ro"])]))
        for pattern in ["cn:backup k\u{212a}", "ou:OPS", "ou:B\u{fc}ro"] {
            #expect(try PeerPattern(pattern).matches(peer), "\(pattern)")
        }
        // The sign for kelvin differs from k, and letters may have two encodings.
        for pattern in ["cn:backup kk", "cn:backup", "ou:op", "ou:Bu\u{308}ro", "ou:Backup K\u{212a}", "dns:backup"] {
            #expect(try !PeerPattern(pattern).matches(peer), "\(pattern)")
        }
    }

    @Test("A certificate with two URIs has no SPIFFE ID: it matches no pattern for one, and others as before")
    func twoURIs() throws {
        func admits(_ pattern: String, _ uris: [String], dns: [String] = []) throws -> Bool {
            let leaf = try TestAuthority.leaf("x", dnsNames: dns, uris: uris)
            return try PeerPolicy(parsing: pattern).admits(try #require(TLSPeer(chain: [leaf])))
        }
        let one = "spiffe://example.org/ns/prod/web"
        for pattern in ["uri:\(one)", "uri:spiffe://example.org/**", "uri:SPIFFE://example.org/ns/prod/*"] {
            #expect(try admits(pattern, [one], dns: ["web.example"]), "\(pattern)")
            for other in ["spiffe://example.org/ns/test/web", one, "https://example.org/", "urn:x"] {
                #expect(try !admits(pattern, [one, other]) && !admits(pattern, [other, one]), "\(pattern) \(other)")
            }
        }
        #expect(try admits("uri:spiffe:one", ["spiffe:one"]) && !admits("uri:spiffe:one", ["spiffe:one", "urn:x"]))
        #expect(try admits("uri:https://a.example/b", ["https://a.example/b", one]))
        #expect(try admits("uri:spiffe://b.example/*, dns:web.example", [one, "urn:x"], dns: ["web.example"]))
    }

    @Test("Text that is not a pattern is refused")
    func textThatIsNoPattern() {
        for text in [
            "", "web.example", "dns:", "dns:web..example", "dns:w*b.example", "dns:a.**.example", "dns:**",
            "dns:web example",
            "dns:b\u{fc}ro.example", "ip:10.0.0", "ip:10.0.0.0/8", "ip:*", "ip:host.example", "uri:spiffe", "uri://x",
            "uri:spiffe://*/x",
            "uri:spiffe://*.example/x",
            "uri:spiffe://example.org/", "uri:spiffe://example.org//x", "uri:spiffe://example.org/**/x",
            "uri:spiffe://example.org/a*", "uri:https://bob@example.org/x", "uri:spiffe://example.org/../x",
            "uri:spiffe://example.org/x?y", "uri:urn:*",
            "email:example.com", "email:a*@example.com", "email:@example.com", "cn:*", "ou:a*", "cn:a\u{7}b", ":x",
            "cn: a", "cn:a ", "ou: ", "dns:127.0.0.1", "dns:::1",
        ] {
            let error = #expect(throws: ProviderError.self, "\(text)") { _ = try PeerPattern(text) }
            #expect(error?.code == .configurationInvalid)
        }
        for text in ["", " , ", "dns:a.example dns:b.example", "\"cn:a", "\"cn:a\" dns:b.example"] {
            #expect(throws: ProviderError.self, "\(text)") { _ = try PeerPolicy(parsing: text) }
        }
    }

    @Test("A part of a name with a comma is named, with the way to write it")
    func aNameWithACommaWithoutQuotes() {
        let error = #expect(throws: ProviderError.self) { _ = try PeerPolicy(parsing: "ou:Second, Unit") }
        #expect(error?.message.contains("'Unit'") == true && error?.message.contains("in double quotes") == true)
    }

    @Test("The refusal of a peer that is not admitted shows its names")
    func theNamesOfARefusedPeer() async throws {
        let authority = try authority.get()
        let verifier = PeerVerifier(
            anchors: IssuerIndex([authority.root]), anchorsName: "the test", peers: PeerPolicy([]))
        let peer = try authority.issue("peer", dnsNames: ["peer.example"])
        do throws(PeerRefusal) {
            _ = try await verifier.verify(peer.certificateChain, as: .client, at: Date())
            Issue.record("admitted")
        } catch {
            #expect(error.reason == .notAdmitted && error.error.message.contains("CN=peer"))
            #expect(error.error.message.contains("peer.example"), "\(error.error.message)")
        }
    }

    @Test("A peer whose own certificate is the trust anchor is refused, and the refusal says that it is not a CA's")
    func aLeafAsTrustAnchor() async throws {
        let authority = try authority.get()
        let peer = try authority.issue("peer")
        for (anchor, words) in [
            (peer.certificate, "itself, which is not a CA's"), (authority.intermediate, ""),
            (try authority.issue("other").certificate, "does not lead to a trust anchor"),
        ] {
            let verifier = PeerVerifier(anchors: IssuerIndex([anchor]), anchorsName: "the test")
            do throws(PeerRefusal) {
                _ = try await verifier.verify(peer.certificateChain, as: .client, at: Date())
                #expect(words.isEmpty)
            } catch {
                #expect(error.reason == .untrusted && !words.isEmpty && error.error.message.contains(words))
            }
        }
    }

    @Test("A pin counts beside the trust anchors or in their place; names, validity and use count with both")
    func pins() async throws {
        let (authority, unknown) = (try authority.get(), try TestAuthority("Unknown"))
        let peer = try authority.issue("peer", dnsNames: ["peer.example"])
        let expired = try authority.issue("old", notAfter: Date(timeIntervalSinceNow: -60))
        let mail = try authority.issue("mail", isForClients: false)
        typealias Refused = PeerRefusal.Reason
        func refusal(
            of peer: Identity, pinning pinned: X509Certificate?, isPinOnly: Bool = false,
            under anchors: TestAuthority, at host: String? = nil,
            allowing names: String = "dns:**.example, cn:old, cn:mail"
        ) async throws -> Refused? {
            var peers = try PeerPolicy(parsing: names)
            peers.pins = try pinned.map { [try CertificatePin(publicKey: CertificatePin.publicKeyText(of: $0))] } ?? []
            peers.isPinOnly = isPinOnly
            let verifier = PeerVerifier(
                anchors: IssuerIndex([anchors.root]), anchorsName: "the test", peers: peers)
            let chain: [X509Certificate]
            do throws(PeerRefusal) {
                chain = try await verifier.verify(
                    peer.certificateChain, as: host.map { .server($0) } ?? .client, at: Date())
            } catch { return error.reason }
            #expect(peers.admits(try #require(TLSPeer(chain: chain))))
            return nil
        }
        let leaf = peer.certificate
        #expect(try await refusal(of: peer, pinning: leaf, under: authority) == nil)
        #expect(try await refusal(of: peer, pinning: authority.root, under: authority) == nil)
        #expect(try await refusal(of: peer, pinning: unknown.root, under: authority) == .notPinned)
        #expect(try await refusal(of: peer, pinning: leaf, under: unknown) == .untrusted)
        #expect(try await refusal(of: peer, pinning: leaf, isPinOnly: true, under: unknown) == nil)
        #expect(try await refusal(of: peer, pinning: leaf, isPinOnly: true, under: unknown, at: "peer.example") == nil)
        // The peer has not proved that it has the keys of its CAs.
        #expect(try await refusal(of: peer, pinning: authority.root, isPinOnly: true, under: authority) == .notPinned)
        #expect(try await refusal(of: peer, pinning: nil, isPinOnly: true, under: authority) == .notPinned)
        for isPinOnly in [false, true] {
            func refused(
                _ peer: Identity, at host: String? = nil, allowing names: String = "dns:**.example, cn:old, cn:mail"
            ) async throws -> Refused? {
                try await refusal(
                    of: peer, pinning: peer.certificate, isPinOnly: isPinOnly, under: authority, at: host,
                    allowing: names)
            }
            #expect(try await refused(expired) == .expired)
            #expect(try await refused(mail) == .usage)
            #expect(try await refused(peer, at: "other.example") == .name)
            #expect(try await refused(peer, allowing: "dns:other.example") == .notAdmitted)
        }
    }

    @Test("A list has patterns, with commas between them, and in double quotes")
    func aListHasPatterns() throws {
        let policy = try PeerPolicy(
            parsing: " dns:*.a.example ,\"cn:Doe, John\",uri:spiffe://b.example/**,, cn:back\\slash")
        func admits(_ name: String, dns: [String] = [], uris: [String] = []) throws -> Bool {
            policy.admits(
                try #require(TLSPeer(chain: [try TestAuthority.leaf(name, dnsNames: dns, uris: uris)])))
        }
        #expect(try admits("x", dns: ["x.a.example"]) && admits("doe, john") && admits("back\\slash"))
        #expect(try admits("x", uris: ["spiffe://b.example/c"]))
        #expect(try !admits("Doe") && !admits("x"))
    }

    @Test("A closure decides by the names")
    func aClosureDecides() throws {
        let policy = PeerPolicy.admitting { $0.names.contains(.dns("a.example")) && $0.organizationalUnits == ["Ops"] }
        let leaf = try TestAuthority.leaf("x", units: ["Ops"], dnsNames: ["a.example"])
        #expect(policy.admits(try #require(TLSPeer(chain: [leaf]))))
        #expect(!policy.admits(try #require(TLSPeer(chain: [try TestAuthority.leaf("x", dnsNames: ["a.example"])]))))
        #expect(!PeerPolicy([]).admits(try #require(TLSPeer(chain: [leaf]))))
    }

    @Test("A peer is logged once a minute, and many peers do not fill memory or log")
    func refusalsAreBounded() throws {
        let log = TestLog()
        let refused = RefusedPeers(logger: log.logger, metrics: NOOPMetricsHandler.instance)
        let refusal = PeerRefusal(.untrusted, .client, "it is not")
        let one = try TestAuthority.leaf("one")
        let start = Date(timeIntervalSince1970: 1_000_000)
        func note(_ leaf: X509Certificate, after seconds: TimeInterval) {
            refused.note(refusal, leaf, server: nil, address: nil, at: start + seconds)
        }
        note(one, after: 0)
        note(one, after: 59)
        #expect(log.lines.count == 1)
        note(one, after: 61)
        #expect(log.lines.count == 2)
        for number in 0..<1100 { note(try TestAuthority.leaf("n\(number)"), after: 62) }
        #expect(log.lines.count == 2 + 1023 + 1, "\(log.lines.count)")
        note(one, after: 200)
        #expect(log.lines.count == 2 + 1023 + 2)
    }

    @Test("A stranger's long names do not fill the log")
    func loggedNamesAreShort() throws {
        let log = TestLog()
        let long = String(repeating: "a.", count: 20_000) + "example"
        let leaf = try TestAuthority.leaf(
            String(repeating: "x", count: 9000), dnsNames: [String](repeating: long, count: 40))
        RefusedPeers(logger: log.logger, metrics: NOOPMetricsHandler.instance).note(
            PeerRefusal(.untrusted, .client, "'\(leaf.subject)' \(long)"), leaf, server: nil, address: nil, at: Date())
        let line = try #require(log.lines.first)
        #expect(log.lines.count == 1 && "\(line)".utf8.count < 10_000, "\("\(line)".utf8.count)")
        #expect("\(line)".contains("a.a.a") && "\(line)".contains("…"))
    }
}
