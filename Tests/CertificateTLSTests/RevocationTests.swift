import CertificateProviding
import Foundation
import MetricsTestKit
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct RevocationTests {
    private let authority: ListingAuthority
    private let lists: TemporaryDirectory

    init() throws { (authority, lists) = (try ListingAuthority(), try TemporaryDirectory()) }

    /// Returns the reason for which the chain is refused.
    private func refusal(
        of identity: Identity, by lists: [UInt8]..., isLenient: Bool = false, at date: Date = Date(),
        trusting anchors: [X509Certificate]? = nil
    ) async throws -> PeerRefusal.Reason? {
        let path = try self.lists.write(lists.flatMap { $0 }, to: "lists")
        let verifier = PeerVerifier(
            anchors: IssuerIndex(anchors ?? [authority.root]), anchorsName: "the test",
            revocation: try RevocationCheck(reading: RevocationLists(path: path, isLenient: isLenient)))
        do throws(PeerRefusal) {
            _ = try await verifier.verify(identity.certificateChain, as: .client, at: date)
            return nil
        } catch { return error.reason }
    }

    @Test("A revoked certificate is refused, of the leaf and of an intermediate")
    func aRevokedCertificateIsRefused() async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        try authority.revoke("bad")
        let (root, issuing) = (try authority.list("root"), try authority.list("issuing"))
        #expect(try await refusal(of: good, by: root, issuing) == nil)
        for isLenient in [false, true] {
            #expect(try await refusal(of: bad, by: root, issuing, isLenient: isLenient) == .revoked)
            #expect(try await refusal(of: bad, by: issuing, root, isLenient: isLenient) == .revoked)
        }
        // The anchor itself is not looked up.
        #expect(try await refusal(of: good, by: issuing, trusting: [authority.issuing]) == nil)
        #expect(try await refusal(of: bad, by: issuing, trusting: [authority.issuing]) == .revoked)
        try authority.revoke("issuing", by: "root")
        #expect(try await refusal(of: good, by: try authority.list("root"), issuing) == .revoked)
    }

    @Test("A list is needed of each CA of the chain, signed by it, begun, not overdue and complete")
    func aListIsNeededOfEachCA() async throws {
        let good = try authority.issue("good")
        let (root, issuing) = (try authority.list("root"), try authority.list("issuing"))
        func expect(
            _ lists: [[UInt8]], at date: Date = Date(), isRefused: Bool = true, _ what: String
        ) async throws {
            let all = lists.flatMap { $0 }
            #expect(
                try await refusal(of: good, by: all, at: date) == (isRefused ? .unknownRevocation : nil), "\(what)")
            #expect(try await refusal(of: good, by: all, isLenient: true, at: date) == nil, "lenient: \(what)")
        }
        try await expect([issuing], "the root's is missing")
        try await expect([root], "the issuing CA's is missing")
        try await expect([root, try authority.list("stranger")], "a CA of the same name has signed it")
        try await expect([root, issuing], at: Date(timeIntervalSinceNow: 8 * 86_400), "overdue")
        try await expect(
            [
                root,
                try authority.list(
                    "issuing", "-crl_lastupdate", "20980101000000Z", "-crl_nextupdate", "20990101000000Z"),
            ], "not begun")
        for scope in ["reasons", "indirect", "delta", "unknown", "authorities"] {
            try await expect([root, try authority.list("issuing", "-crlexts", scope)], scope)
        }
        try await expect(
            [root, try authority.list("issuing", "-crlexts", "users")], isRefused: false, "only of leaves")
        try await expect([try authority.list("root", "-crlexts", "users"), issuing], "only of leaves, for a CA")
        try await expect(
            [try authority.list("root", "-crlexts", "authorities"), issuing], isRefused: false, "only of CAs")
    }

    @Test("A list that covers a part does not count, but what it has is refused", arguments: [false, true])
    func whatPartialListsHave(isLenient: Bool) async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        let root = try authority.list("root")
        let full = try authority.list(
            "issuing", "-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", "20990101000000Z")
        try authority.revoke("bad")
        for scope in ["reasons", "delta", "unknown", "indirect"] {
            let part = try authority.list("issuing", "-crlexts", scope)
            let isRevoked = scope != "indirect"
            #expect(
                try await refusal(of: bad, by: root, full, part, isLenient: isLenient) == (isRevoked ? .revoked : nil),
                "\(scope)")
            #expect(try await refusal(of: good, by: root, full, part, isLenient: isLenient) == nil, "\(scope)")
            let alone = try await refusal(of: bad, by: root, part, isLenient: isLenient)
            #expect(alone == (isRevoked ? .revoked : isLenient ? nil : .unknownRevocation), "\(scope)")
        }
        // It is not revoked any more, by a list that is newer.
        let old = try authority.list(
            "issuing", "-crlexts", "reasons", "-crl_lastupdate", "20250101000000Z", "-crl_nextupdate", "20990101000000Z"
        )
        #expect(try await refusal(of: bad, by: root, full, old, isLenient: isLenient) == nil)
        // A list of another CA of the same name revokes nothing.
        try authority.directory.write(try authority.directory.read("issuing.index"), to: "stranger.index")
        let stranger = try authority.list("stranger", "-crlexts", "delta")
        #expect(try await refusal(of: bad, by: root, full, stranger, isLenient: isLenient) == nil)
    }

    /// OpenSSL's commands make none.
    @Test("A list with an entry that has an unknown critical extension counts as missing", arguments: [true, false])
    func entriesWithCriticalExtensions(isCritical: Bool) async throws {
        let good = try authority.issue("good")
        func der(_ tag: UInt8, _ parts: [UInt8]...) -> [UInt8] {
            let content = parts.flatMap { $0 }
            return [tag, 0x82, UInt8(content.count >> 8), UInt8(content.count & 255)] + content
        }
        func sequence(_ parts: [UInt8]...) -> [UInt8] { der(0x30, parts.flatMap { $0 }) }
        let algorithm: [UInt8] = [0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02]
        let begin: [UInt8] = [0x17, 0x0d] + "200101000000Z".utf8
        let end: [UInt8] = [0x18, 0x0f] + "20990101000000Z".utf8
        let unknown: [UInt8] =
            [0x06, 0x03, 0x2a, 0x03, 0x04] + (isCritical ? [0x01, 0x01, 0xff] : []) + [0x04, 0x02, 0x05, 0x00]
        let entry = sequence([0x02, 0x01, 0x07], begin, sequence(sequence(unknown)))
        let content = sequence(
            [0x02, 0x01, 0x01], algorithm, authority.issuing.subjectDER, begin, end, sequence(entry))
        try authority.directory.write(content, to: "content")
        let signature = try authority.openssl("issuing", "dgst", "-sha256", "-sign", "issuing.key", "content")
        try authority.directory.write(sequence(content, algorithm, der(0x03, [0], signature)), to: "odd.der")
        try authority.openssl("issuing", "crl", "-inform", "DER", "-in", "odd.der", "-out", "odd.pem")
        let root = try authority.list("root")
        let odd = try authority.directory.read("odd.pem")
        #expect(try await refusal(of: good, by: root, odd) == (isCritical ? .unknownRevocation : nil))
        #expect(try await refusal(of: good, by: root, odd, isLenient: true) == nil)
    }

    @Test("A link that leads nowhere, in a directory of lists, is an error and not a smaller set")
    func aDirectoryWithALinkThatLeadsNowhere() throws {
        try lists.write(try authority.list("root"), to: "root.pem")
        try Subprocess.run(["ln", "-s", "nowhere", "issuing.pem"], in: lists.path)
        let configured = RevocationLists(path: lists.path, isLenient: true)
        let error = #expect(throws: CertificateProviderError.self) { _ = try RevocationCheck(reading: configured) }
        #expect(error?.code == .configurationInvalid && error?.message.contains(lists["issuing.pem"]) == true)
        try Subprocess.run(["rm", "issuing.pem"], in: lists.path)
        // Neither a directory nor a pipe is a list.
        try Subprocess.run(["sh", "-c", "mkdir old; mkfifo pipe"], in: lists.path)
        _ = try RevocationCheck(reading: configured)
    }

    @Test("An overdue list still refuses what it has")
    func anOverdueListStillRefuses() async throws {
        let bad = try authority.issue("bad")
        try authority.revoke("bad")
        let (root, issuing) = (try authority.list("root"), try authority.list("issuing"))
        let later = Date(timeIntervalSinceNow: 8 * 86_400)
        #expect(try await refusal(of: bad, by: root, issuing, isLenient: true, at: later) == .revoked)
    }

    @Test("A list that has not begun by this host's clock refuses what it has, and does not count")
    func aListFromTheFuture() async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        let root = try authority.list("root")
        let old = try authority.list(
            "issuing", "-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", "20990101000000Z")
        try authority.revoke("bad")
        let new = try authority.list(
            "issuing", "-crl_lastupdate", "20980101000000Z", "-crl_nextupdate", "20990101000000Z")
        for isLenient in [false, true] {
            #expect(try await refusal(of: bad, by: root, new, isLenient: isLenient) == .revoked)
            #expect(try await refusal(of: bad, by: root, old, new, isLenient: isLenient) == .revoked)
            #expect(try await refusal(of: good, by: root, old, new, isLenient: isLenient) == nil)
        }
        #expect(try await refusal(of: good, by: root, new, isLenient: true) == nil)
        let path = try lists.write(root + new, to: "lists")
        let verifier = PeerVerifier(
            anchors: IssuerIndex([authority.root]), anchorsName: "the test",
            revocation: try RevocationCheck(reading: RevocationLists(path: path)))
        do throws(PeerRefusal) {
            _ = try await verifier.verify(good.certificateChain, as: .client, at: Date())
            Issue.record("accepted")
        } catch {
            let words = "the revocation list of 'CN=issuing' begins at 2098-01-01T00:00:00Z; check this host's clock"
            #expect(error.reason == .unknownRevocation && error.error.message.contains(words), "\(error.error.message)")
        }
    }

    @Test("A list counts whose CA has written its name in another way")
    func aListByAnotherFormOfTheName() async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        try authority.revoke("bad")
        try authority.openssl(
            "issuing", "req", "-x509", "-new", "-config", "ca.cnf", "-key", "issuing.key", "-subj", "/CN=ISSUING",
            "-out",
            "alias.pem")
        for part in ["key", "index", "number"] {
            try authority.directory.write(try authority.directory.read("issuing.\(part)"), to: "alias.\(part)")
        }
        let (root, list) = (try authority.list("root"), try authority.list("alias"))
        for isLenient in [false, true] {
            #expect(try await refusal(of: bad, by: root, list, isLenient: isLenient) == .revoked)
            #expect(try await refusal(of: good, by: root, list, isLenient: isLenient) == nil)
        }
    }

    @Test("The latest of several lists of a CA counts")
    func theLatestListCounts() async throws {
        let bad = try authority.issue("bad")
        let root = try authority.list("root")
        let old = try authority.list(
            "issuing", "-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", "20990101000000Z")
        #expect(try await refusal(of: bad, by: root, old) == nil)
        try authority.revoke("bad")
        let new = try authority.list("issuing")
        for lists in [[old, new], [new, old]] {
            #expect(try await refusal(of: bad, by: root, lists[0], lists[1]) == .revoked)
        }
    }

    @Test("Of two lists of one second, both revoke, and the one that lasts longer counts")
    func listsOfOneSecond() async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        let root = try authority.list("root")
        func list(until end: String) throws -> [UInt8] {
            try authority.list("issuing", "-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", end)
        }
        let (before, overdue) = (try list(until: "20990101000000Z"), try list(until: "20260102000000Z"))
        try authority.revoke("bad")
        let after = try list(until: "20990101000000Z")
        for lists in [[before, after], [after, before]] {
            #expect(try await refusal(of: bad, by: root, lists[0], lists[1]) == .revoked)
            #expect(try await refusal(of: good, by: root, lists[0], lists[1]) == nil)
        }
        for lists in [[before, overdue], [overdue, before]] {
            #expect(try await refusal(of: good, by: root, lists[0], lists[1]) == nil)
        }
    }

    @Test("A CA that must not sign lists has none")
    func aCAThatMustNotSignLists() async throws {
        let good = try authority.issue("good")
        // The same name and key, certified for certificates only.
        try authority.openssl(
            "root", "ca", "-config", "ca.cnf", "-batch", "-in", "issuing.csr", "-out", "unable.pem", "-notext",
            "-extensions", "unable")
        let unable = try X509Certificate.certificates(
            pem: String(decoding: authority.directory.read("unable.pem"), as: UTF8.self))[0]
        let chain = try Identity(
            certificateChain: [good.certificate, unable], key: good.key, provenance: good.provenance)
        let lists = try (authority.list("root"), authority.list("issuing"))
        #expect(try await refusal(of: good, by: lists.0, lists.1) == nil)
        #expect(try await refusal(of: chain, by: lists.0, lists.1) == .unknownRevocation)
    }

    @Test("A list of 100,000 entries is searched; DER, a directory and several lists in a file are read")
    func aLongList() async throws {
        let (good, bad) = (try authority.issue("good"), try authority.issue("bad"))
        try authority.revoke("bad")
        let index = try authority.directory.read("issuing.index")
        let more = (0..<100_000).map {
            "R\t301231235959Z\t260101000000Z\t\(String(0x7000_0000 + $0 * 7, radix: 16).uppercased())\tunknown\t/CN=n\n"
        }
        try authority.directory.write(index + Array(more.joined().utf8), to: "issuing.index")
        try authority.directory.write(try authority.list("issuing"), to: "long.pem")
        try authority.openssl("issuing", "crl", "-in", "long.pem", "-outform", "DER", "-out", "long.der")
        let der = try authority.directory.read("long.der")
        for name in ["long.der", "long.pem"] {
            let entries = try RevocationLists(path: authority.directory[name]).contents().flatMap(\.lists)
            #expect(entries.map(\.count) == [100_001] && entries.map(\.issuer) == ["CN=issuing"])
        }
        let directory = try TemporaryDirectory()
        try directory.write(der, to: "issuing.crl")
        try directory.write(try authority.list("stranger") + authority.list("root"), to: "others.pem")
        let verifier = PeerVerifier(
            anchors: IssuerIndex([authority.root]), anchorsName: "the test",
            revocation: try RevocationCheck(reading: RevocationLists(path: directory.path)))
        _ = try await verifier.verify(good.certificateChain, as: .client, at: Date())
        do throws(PeerRefusal) {
            _ = try await verifier.verify(bad.certificateChain, as: .client, at: Date())
            Issue.record("accepted")
        } catch {
            #expect(error.reason == .revoked)
            #expect(
                error.error.message.contains("'CN=bad' (serial number \(bad.certificate.serialNumberText)) is revoked"))
        }
    }

    @Test("A file that is damaged, cut or without a list is refused")
    func damagedListsAreRefused() throws {
        let whole = try authority.list("issuing")
        let text = String(decoding: whole, as: UTF8.self)
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        let damaged: [(String, CertificateProviderError.Code)] = [
            ("", .configurationInvalid), ("text", .configurationInvalid),
            (authority.root.pemRepresentation, .configurationInvalid), (String(text.dropLast(30)), .malformedData),
            (text + lines.prefix(3).joined(separator: "\n"), .malformedData),
            (text.replacing(lines[1], with: lines[1].reversed()), .malformedData),
        ]
        for (content, code) in damaged {
            let path = try lists.write(content.utf8, to: "lists")
            let error = #expect(throws: CertificateProviderError.self, "\(content)") {
                _ = try RevocationCheck(reading: RevocationLists(path: path))
            }
            #expect(
                error?.code == code && error?.message.contains(path) == true,
                "\(error.map(String.init(describing:)) ?? "")")
        }
        let missing = #expect(throws: CertificateProviderError.self) {
            _ = try RevocationCheck(reading: RevocationLists(path: "/nonexistent"))
        }
        #expect(missing?.code == .fileNotFound)
    }

    @Test("Lists rotate in a running server, and for a client")
    func listsRotate() async throws {
        let (good, bad, server) = (
            try authority.issue("good"), try authority.issue("bad"), try authority.issue("server")
        )
        func write(_ directory: TemporaryDirectory) throws {
            try directory.write(try authority.list("root") + authority.list("issuing"), to: "lists.pem")
        }
        func host(_ identity: Identity) async throws -> RotatingHost {
            try await RotatingHost(presenting: identity, trusting: [authority.root]) { directory in
                try write(directory)
                return RevocationLists(path: directory["lists.pem"])
            }
        }
        let (serving, one, other) = (try await host(server), try await host(good), try await host(bad))
        try await withEventLoops { group in
            try await serving.serve(on: group) { port in
                for client in [one, other] { _ = try await client.connect(port: port, on: group) }
                try authority.revoke("bad")
                try write(serving.directory)
                await serving.look()
                _ = try await one.connect(port: port, on: group)
                await #expect(throws: (any Error).self) { try await other.connect(port: port, on: group) }
                try authority.revoke("server")
                try write(one.directory)
                await one.look()
                await #expect(throws: (any Error).self) { try await one.connect(port: port, on: group) }
            }
        }
        #expect(serving.refusals("revoked") == 1 && one.refusals("revoked", of: "server") == 1)
        let end = try serving.metrics.expectGauge("certprov_revocation_lists_expiration_timestamp_seconds").lastValue
        #expect(try #require(end) > Date().timeIntervalSince1970 + 6 * 86_400)
    }
}
