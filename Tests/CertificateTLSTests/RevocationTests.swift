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
            #expect(try await refusal(of: bad, by: root, full, part, isLenient: isLenient) == .revoked, "\(scope)")
            #expect(try await refusal(of: good, by: root, full, part, isLenient: isLenient) == nil, "\(scope)")
            #expect(try await refusal(of: bad, by: root, part, isLenient: isLenient) == .revoked, "\(scope)")
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

    @Test(
        "A list for a distribution point covers the certificates that name it, without reasons and issuer",
        arguments: [
            ("leaf-with-point", "users-of-point", true), ("leaf-with-point", "all-of-point", true),
            ("leaf-with-two-points", "users-of-point", true), ("leaf", "users-of-point", false),
            ("leaf-with-reasons", "users-of-point", false), ("leaf-with-issuer", "users-of-point", false),
            ("leaf-with-point", "authorities-of-point", false), ("leaf-with-point", "reasons-of-point", false),
            ("leaf-with-point", "indirect-of-point", false),
        ])
    func listsOfDistributionPoints(extensions: String, scope: String, isWhole: Bool) async throws {
        let (good, bad) = (try authority.issue("good", extensions), try authority.issue("bad", extensions))
        try authority.revoke("bad")
        let (root, list) = (try authority.list("root"), try authority.list("issuing", "-crlexts", scope))
        #expect(try await refusal(of: good, by: root, list) == (isWhole ? nil : .unknownRevocation))
        #expect(try await refusal(of: good, by: root, list, isLenient: true) == nil)
        for isLenient in [false, true] {
            #expect(try await refusal(of: bad, by: root, list, isLenient: isLenient) == .revoked)
        }
        // OpenSSL's command says the same.
        try authority.directory.write(root + list, to: "lists.pem")
        let openssl = try Subprocess(
            [
                "openssl", "verify", "-crl_check_all", "-CAfile", "root.pem", "-untrusted", "issuing.pem", "-CRLfile",
                "lists.pem", "good.pem",
            ], in: authority.directory.path, .captured()
        ).wait()
        #expect((openssl.status == 0) == isWhole, "\(openssl)")
    }

    @Test(
        "A refusal says that the list is there, and what it covers",
        arguments: [
            (
                "users-of-point",
                "only certificates that are not a CA's, of the distribution point uri:http://ca.example.test/1.0/crl"
            ),
            ("all-of-point", "only certificates of the distribution point uri:http://ca.example.test/1.0/crl"),
            ("authorities", "only certificates of CAs"), ("delta", "only changes of another list"),
            ("reasons", "only some reasons"), ("indirect", "only certificates of several issuers"),
            ("unknown", "only what an unknown critical extension says"),
        ])
    func whatAListCovers(scope: String, words: String) async throws {
        let good = try authority.issue("good")
        let list = try authority.list("root") + authority.list("issuing", "-crlexts", scope)
        let message = try await message(of: good, by: list)
        #expect(
            message.contains("the revocation list of 'CN=issuing' in ") && message.contains("does not cover 'CN=good'"))
        #expect(message.contains(words), "\(message)")
        let contents = try RevocationLists(path: lists["lists"]).contents()
        let entry = contents.files.flatMap(\.lists).last
        #expect(entry?.limit.map { words.hasPrefix("only " + $0.prefix(10)) } == true)
    }

    @Test("A refusal says whether a list is missing, or not the CA's")
    func listsThatAreMissing() async throws {
        let good = try authority.issue("good")
        let root = try authority.list("root")
        #expect(try await message(of: good, by: root).contains("there is no revocation list of 'CN=issuing' in "))
        let foreign = try await message(of: good, by: root + authority.list("stranger"))
        #expect(
            foreign.contains("the revocation list of 'CN=issuing' in ") && foreign.contains("is not signed by that CA"))
    }

    /// Returns why the chain is refused.
    private func message(of identity: Identity, by list: [UInt8]) async throws -> String {
        let path = try lists.write(list, to: "lists")
        let verifier = PeerVerifier(
            anchors: IssuerIndex([authority.root]), anchorsName: "the test",
            revocation: try RevocationCheck(reading: RevocationLists(path: path)))
        do throws(PeerRefusal) {
            _ = try await verifier.verify(identity.certificateChain, as: .client, at: Date())
            return ""
        } catch { return error.error.message }
    }

    @Test("A list that is older than the one before it, or missing, is taken with a warning")
    func olderLists() async throws {
        let (server, bad) = (try authority.issue("server"), try authority.issue("bad"))
        let root = try authority.list("root")
        let old = try authority.list(
            "issuing", "-crl_lastupdate", "20260101000000Z", "-crl_nextupdate", "20990101000000Z")
        try authority.revoke("bad")
        let new = try authority.list("issuing")
        let host = try await RotatingHost(presenting: server, trusting: [authority.root]) { directory in
            try directory.write(root + new, to: "lists.pem")
            return RevocationLists(path: directory["lists.pem"], isLenient: true)
        }
        func warnings() -> [String] { host.log.warnings.filter { $0.contains("older than the one before it") } }
        try await withEventLoops { group in
            try await host.serve(on: group) { port in
                func isAdmitted() async throws -> Bool {
                    let client = try await RotatingHost(presenting: bad, trusting: [authority.root])
                    return (try? await client.connect(port: port, on: group)) != nil
                }
                #expect(try await !isAdmitted())
                try host.directory.write(root + old, to: "lists.pem")
                await host.look()
                #expect(try await isAdmitted())
                #expect(warnings().count == 1 && warnings()[0].contains("'CN=issuing' is of 2026-01-01T00:00:00Z"))
                try host.directory.write(root, to: "lists.pem")
                await host.look()
                #expect(
                    warnings().count == 2 && warnings()[1].contains("'CN=issuing' of 2026-01-01T00:00:00Z is missing"))
                try host.directory.write(new + root, to: "lists.pem")
                await host.look()
                #expect(warnings().count == 2)
                try host.directory.write(root + old, to: "lists.pem")
                try await host.tls.update(trusting: host.tls.trust)
                #expect(warnings().count == 3)
            }
        }
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
        let error = #expect(throws: ProviderError.self) { _ = try RevocationCheck(reading: configured) }
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
            let entries = try RevocationLists(path: authority.directory[name]).contents().files.flatMap(\.lists)
            #expect(entries.map(\.count) == [100_001] && entries.map(\.issuer) == ["CN=issuing"])
        }
        let directory = try TemporaryDirectory()
        try directory.write(der, to: "issuing.crl")
        let contents = try RevocationLists(path: directory.path).contents()
        unlink(directory["issuing.crl"])
        #expect(contents.authoritiesWithoutList([authority.root, authority.issuing]).count == 1, "read once")
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
        let damaged: [(String, ProviderError.Code)] = [
            ("", .configurationInvalid), ("text", .configurationInvalid),
            (authority.root.pemRepresentation, .configurationInvalid), (String(text.dropLast(30)), .malformedData),
            (text + lines.prefix(3).joined(separator: "\n"), .malformedData),
            (text.replacing(lines[1], with: lines[1].reversed()), .malformedData),
        ]
        for (content, code) in damaged {
            let path = try lists.write(content.utf8, to: "lists")
            let error = #expect(throws: ProviderError.self, "\(content)") {
                _ = try RevocationCheck(reading: RevocationLists(path: path))
            }
            #expect(
                error?.code == code && error?.message.contains(path) == true,
                "\(error.map(String.init(describing:)) ?? "")")
        }
        let missing = #expect(throws: ProviderError.self) {
            _ = try RevocationCheck(reading: RevocationLists(path: "/nonexistent"))
        }
        #expect(missing?.code == .fileNotFound)
    }

    @Test("Lists rotate in a running server, and for a client", arguments: HandlerMaker.allCases)
    func listsRotate(maker: HandlerMaker) async throws {
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
            try await serving.serve(on: group, by: maker) { port in
                for client in [one, other] { _ = try await client.connect(port: port, on: group, by: maker) }
                try authority.revoke("bad")
                try write(serving.directory)
                await serving.look()
                _ = try await one.connect(port: port, on: group, by: maker)
                await #expect(throws: (any Error).self) { try await other.connect(port: port, on: group, by: maker) }
                try authority.revoke("server")
                try write(one.directory)
                await one.look()
                await #expect(throws: (any Error).self) { try await one.connect(port: port, on: group, by: maker) }
            }
        }
        #expect(serving.refusals("revoked") == 1 && one.refusals("revoked", of: "server") == 1)
        let end = try serving.metrics.expectGauge("certprov_revocation_lists_expiration_timestamp_seconds").lastValue
        #expect(try #require(end) > Date().timeIntervalSince1970 + 6 * 86_400)
    }
}
