import CertificateProviding
import Foundation
import Glibc
import HostSockets
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import HostService

@Suite struct CredentialClaimTests {
    @Test(
        "The name that systemd binds says unit, identity and part",
        arguments: [
            ("0a1b2c/unit/nginx.service/web.pem", "web", CredentialClaim.Part.pair),
            ("f/unit/a@b\\x2d.service/w-e_b.crt", "w-e_b", .chain),
            ("ffffffffffffffff/unit/a.service/web.key", "web", .key),
            ("0/unit/a.service/web.pem.ca", "web.pem", .trust),
        ])
    func claims(name: String, identity: String, part: CredentialClaim.Part) throws {
        let claim = try CredentialClaim([0] + Array(name.utf8))
        #expect(
            claim.identity == identity && claim.part == part && name.hasSuffix("/\(claim.unit)/\(claim.credential)"))
    }

    @Test(
        "Any other name is refused",
        arguments: [
            "", "\0", "\0/unit/a.service/web.pem", "\0xyz/unit/a.service/web.pem", "\0a/user/a.service/web.pem",
            "\0a/unit//web.pem", "\0a/unit/a.service/b/web.pem", "\0a/unit/a.service/web.pem\0",
            "\0a/unit/a.service/web",
            "\0a/unit/a.service/.pem", "\0a/unit/a.service/", "\0a/unit/a.service/web.PEM",
            "\0a/unit/a b.service/web.pem",
            "\0a/unit/a.service/w\u{e9}b.pem", "/run/unit/a.service/web.pem",
            "\010000000000000000/unit/a.service/web.pem",
        ])
    func refused(name: String) { #expect(throws: Grants.Refusal.self) { try CredentialClaim(Array(name.utf8)) } }
}

/// Clients are root's, in a control group that is a unit of this test: systemd is not needed.
@Suite(.enabled(if: geteuid() == 0 && access("/sys/fs/cgroup/unified/cgroup.procs", W_OK) == 0))
struct CredentialSocketTests {
    private static let refused = 1 << 20 + 1
    private let directory: TemporaryDirectory
    private let authority: TestAuthority
    private let log = TestLog()
    private let group: String
    private let served = Served()

    private final class Served: Sendable {
        let identity = Mutex<ServedIdentity?>(nil)
    }

    init() throws {
        directory = try TemporaryDirectory()
        authority = try TestAuthority()
        group = "/sys/fs/cgroup/unified/certproved-\(getpid())-\(UInt32.random(in: 0 ... .max)).slice"
    }

    /// Calls `body` with a socket at `a.sock`.
    private func withSocket(
        timeout: Duration = .seconds(600), _ body: (CredentialSocket) async throws -> Void
    ) async throws {
        for path in [group, group + "/web.service"] { try #require(mkdir(path, 0o755) == 0) }
        defer { for path in [group + "/web.service", group] { rmdir(path) } }
        let listening = try ListeningSocket(at: directory["a.sock"], setting: "--socket")
        let socket = CredentialSocket([listening], logger: log.logger, timeout: timeout) { [served] name in
            guard let identity = served.identity.withLock(\.self), identity.name == name else {
                return .failure(.init("\(name) is not there"))
            }
            return .success(identity)
        }
        try await socket.start(on: MultiThreadedEventLoopGroup.singleton)
        try await body(socket)
        await socket.stop()
    }

    private func serve(_ identity: Identity, _ selectors: Set<Selector> = [.unit("web.service")], key: Bool = true) {
        let grants = Grants([.init(name: "Serve.allow.1", selectors, text: "grant")])
        served.identity.withLock {
            $0 = ServedIdentity(name: "web", identities: [identity], grants: grants, handsOutKey: key)
        }
    }

    private static let script = """
        import base64, os, socket, sys
        for line in sys.stdin:
            client = socket.socket(socket.AF_UNIX)
            client.bind("\\0%x/unit/web.service/%s" % (int.from_bytes(os.urandom(8), "big"), line.strip()))
            client.connect(sys.argv[1])
            client.shutdown(socket.SHUT_WR)
            content = b""
            while part := client.recv(1 << 20): content += part
            print(len(content), base64.b64encode(content[:50000]).decode(), flush=True)
        """

    /// A process of the unit, which fetches each credential that it is told.
    private func client() throws -> Subprocess {
        try Subprocess([
            "sh", "-c", "echo $$ >\(group)/web.service/cgroup.procs && exec \"$@\"", "sh", "/usr/bin/python3", "-c",
            Self.script, directory["a.sock"],
        ])
    }

    /// Returns the size of a credential, and its text.
    private func fetch(_ credential: String, _ client: Subprocess) async throws -> (size: Int, text: String) {
        #expect(client.writeLine(credential))
        let words = try #require(await client.nextLine()).split(separator: " ")
        let data = try #require(Data(base64Encoded: String(words[1])))
        return (try #require(Int(words[0])), String(decoding: data, as: UTF8.self))
    }

    @Test("A process gets certificate and key of one generation whatever is renewed, and the next process the next one")
    func oneGeneration() async throws {
        let (old, new) = (try authority.issue("old"), try authority.issue("new"))
        serve(old)
        try await withSocket { _ in
            let first = try client()
            #expect(try await fetch("web.crt", first).text == old.certificateChain.map(\.pemRepresentation).joined())
            serve(new)
            for (process, identity) in [(first, old), (try client(), new)] {
                let pair = try await fetch("web.pem", process).text
                #expect(pair.hasSuffix(identity.certificateChain.map(\.pemRepresentation).joined()))
                let alone = try await fetch("web.key", process).text
                #expect(pair.hasPrefix(alone))
                let secret = try #require(PEMFile(Array(alone.utf8), named: "web.key").blocks[0].secret)
                #expect(try SoftwareKey(pkcs8: secret, location: .file).publicKey == identity.key.publicKey)
            }
        }
        #expect(log.lines.count { $0.message == "identity served" } == 5 && !log.text.contains("PRIVATE"))
    }

    @Test("A refusal is larger than any credential, and its reason is in the log once a minute")
    func refusals() async throws {
        let identity = try authority.issue("web")
        try await withSocket { _ in
            let client = try client()
            func expectRefusal(of credential: String, _ reason: String) async throws {
                #expect(try await fetch(credential, client).size == Self.refused)
                #expect(log.warnings.last?.contains(reason) == true, "\(log.text)")
            }
            serve(identity, key: false)
            try await expectRefusal(of: "web.pem", "no Serve.hand-out-key = true")
            try await expectRefusal(of: "web.ca", "without CA certificates")
            #expect(try await fetch("web.crt", client).size < 10_000)
            serve(identity, [.unit("web.service"), .user(0)])
            try await expectRefusal(of: "web.crt", "names a user or group, and credentials are fetched by root")
            serve(identity, [.cgroup("/")])
            try await expectRefusal(of: "web.crt", "it names no unit")
            serve(
                try Identity(
                    certificateChain: identity.certificateChain, key: TestKey(identity.key),
                    provenance: identity.provenance))
            let other = try self.client()
            #expect(try await fetch("web.key", other).size == Self.refused)
            #expect(log.warnings.last?.contains("cannot leave its token") == true, "\(log.text)")
            let count = log.warnings.count
            #expect(try await fetch("web.key", other).size == Self.refused)
            #expect(log.warnings.count == count)
            // More than a socket takes at once.
            let many = try (0..<250).map { try TestAuthority.certificate(subject: "\($0)", issuer: "other") }
            serve(
                try Identity(
                    certificateChain: identity.certificateChain, key: identity.key, trust: TrustBundle(many),
                    provenance: identity.provenance))
            let third = try self.client()
            #expect(try await fetch("web.ca", third).size == Self.refused)
            #expect(log.warnings.last?.contains("at most") == true, "\(log.text)")
        }
    }

    @Test("An identity that is not there yet is waited for, at most as long as it is permitted, or until the end")
    func absent() async throws {
        try await withSocket(timeout: .zero) { _ in
            let client = try client()
            #expect(try await fetch("web.pem", client).size == Self.refused)
            #expect(log.warnings.last?.contains("web is not there") == true)
        }
        try await withSocket { socket in
            let (first, second) = (try client(), try client())
            #expect(first.writeLine("web.crt"))
            // The other one is refused at once.
            #expect(try await fetch("none", second).size == Self.refused)
            serve(try authority.issue("web"))
            #expect(await first.nextLine()?.hasPrefix("\(Self.refused) ") == false)
            served.identity.withLock { $0 = nil }
            #expect(first.writeLine("web.key"))
            #expect(try await fetch("none", second).size == Self.refused)
            await socket.stop()
            #expect(await first.nextLine()?.hasPrefix("\(Self.refused) ") == true)
        }
    }
}
