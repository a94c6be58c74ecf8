import CertificateProviding
import CertificateTLS
import Foundation
import Testing

@testable import RelyingParty

/// With the reference authority, as OpenID provider and as verifier, and its own tests' signer.
@Suite(
    .timeLimit(.minutes(30)),
    .enabled(if: Peers.python != nil, "it needs SPLITKEY_PYTHON, a Python with authority/requirements.txt"))
struct AuthorityTests {
    /// A running authority, and a relying party that is registered there.
    private struct Authority {
        let directory: TemporaryDirectory
        let path: String
        let process: Program
        let url: String
        let clientID: String
        let clientSecret: String

        init() async throws {
            directory = try TemporaryDirectory()
            path = directory.path
            process = try Program(
                [
                    try #require(Peers.python), "-m", "authority", "serve", "--state", path + "/state", "--port", "0",
                    "--ports-file", path + "/ports",
                ],
                in: path, environment: ["PYTHONPATH": packageDirectory])
            url = try #require(try await process.start(until: path + "/ports")["url"] as? String)
            let text = try await Self.python(
                [
                    "-m", "authority", "register", "--state", path + "/state", "--name", "test", "--redirect-uri",
                    ScriptedServer.redirectURI,
                ],
                in: path)
            let client = try #require(try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: String])
            (clientID, clientSecret) = (try #require(client["client_id"]), try #require(client["client_secret"]))
        }

        static func python(_ words: [String], in path: String) async throws -> String {
            try await Program.run(
                [try #require(Peers.python)] + words, in: path, environment: ["PYTHONPATH": packageDirectory])
        }

        func helper(_ words: String...) async throws -> Data {
            let script = packageDirectory + "/Tests/RelyingPartyTests/sign.py"
            return Data(try await Self.python([script] + words, in: path).utf8)
        }

        /// Enrols a user, whose signing key is in a file, and returns a session.
        func enrol(_ user: String, _ file: String) async throws -> String {
            let code = try await Self.python(["-m", "authority", "code", "--state", path + "/state", user], in: path)
            let answer = try await helper(
                "enrol", url, path + "/state/ca.pem", code.filter { !$0.isWhitespace }, file, "123456")
            let json = try #require(try JSONSerialization.jsonObject(with: answer) as? [String: Any])
            return try #require(json["session"] as? String)
        }

        func sign(_ file: String, _ hash: String, _ timestamp: Int, pin: String = "123456") async throws -> [String:
            String]
        {
            try JSONDecoder().decode(
                [String: String].self, from: try await helper("sign", file, hash, "\(timestamp)", pin))
        }

        func configure(_ configuration: inout RelyingPartyConfiguration) {
            (configuration.issuer, configuration.authority) = (url, url)
            (configuration.clientID, configuration.clientSecret) = (clientID, SecretBytes(utf8: clientSecret))
            configuration.trust = ServerTrust(trustAnchors: .pemFile(path + "/state/ca.pem"))
        }
    }

    private func login(_ site: Site, _ authority: Authority, _ session: String, _ user: String) async throws -> String {
        let (code, state) = try await site.authorization(
            at: authority.path + "/state/ca.pem", ["Authorization: Bearer \(session)"])
        let (status, json) = try await site.post("/authtoken", ["code": code, "userID": user, "state": state])
        #expect(status == 200)
        return json["access_token"] as? String ?? ""
    }

    @Test("Signatures go from the login to the receipt, wrong PINs to the block")
    func signaturesAreVerified() async throws {
        let authority = try await Authority()
        try await Site.run(isRunning: true, configure: authority.configure) { (site: Site) async throws in
            let session = try await authority.enrol(Site.alice, "alice")
            let bearer = try await login(site, authority, session, Site.alice)
            let (hash, timestamp, token) = try await site.document(bearer)
            let right = try await authority.sign("alice", hash, timestamp)
            for _ in 0..<2 {
                #expect(
                    try await site.verify(right, timestamp, bearer: bearer, authToken: token) == (
                        200, "ValidSignature", true
                    ))
            }
            // Another one's token, and another key of the same user.
            let bobs = try await authority.enrol(Site.bob, "bob")
            let bob = try await login(site, authority, bobs, Site.bob)
            #expect(try await site.verify(right, timestamp, bearer: bob).status == 403)
            _ = try await authority.enrol(Site.alice, "another")
            let another = try await authority.sign("another", hash, timestamp)
            #expect(try await site.verify(another, timestamp, bearer: bearer) == (200, "InvalidSignature", false))
            // The same wrong signature again is one try.
            for verdict in ["BadPin", "BadPin", "UserBlocked"] {
                let wrong = try await authority.sign("alice", hash, timestamp, pin: "654321")
                for _ in 0..<2 {
                    #expect(try await site.verify(wrong, timestamp, bearer: bearer) == (200, verdict, false))
                }
            }
            let late = try await authority.sign("alice", hash, timestamp)
            #expect(try await site.verify(late, timestamp, bearer: bearer) == (200, "UserBlocked", false))
        }
        #expect(try await authority.process.end() == 0)
    }

    @Test func anAuthorityThatIsDownIsSaid() async throws {
        let authority = try await Authority()
        try await Site.run(isRunning: true, configure: authority.configure) { (site: Site) async throws in
            let session = try await authority.enrol(Site.alice, "alice")
            let bearer = try await login(site, authority, session, Site.alice)
            let (hash, timestamp, _) = try await site.document(bearer)
            let signature = try await authority.sign("alice", hash, timestamp)
            _ = try await authority.process.end(by: SIGKILL)
            #expect(try await site.verify(signature, timestamp, bearer: bearer) == (503, nil, nil))
        }
    }
}
