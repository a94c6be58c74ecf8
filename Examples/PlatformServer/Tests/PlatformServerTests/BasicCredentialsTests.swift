import Foundation
import Hummingbird
import HummingbirdTesting
import NIOCore
import Testing

@testable import PlatformServer

@Suite("Users with passwords and activation codes")
struct BasicCredentialsTests {
    let directory = TemporaryDirectory()

    private func basic(_ text: String) -> HTTPFields {
        [.authorization: "Basic \(Data(text.utf8).base64EncodedString())"]
    }

    private func users(code: String = "code") throws -> Users {
        try Users(
            parsing: """
                # comment
                alice:password:\(PasswordHash(of: "wonderland:1"))
                bob:activation:\(PasswordHash(of: code))
                """)
    }

    @Test("A user with the right password registers")
    func password() async throws {
        let server = try TestServer(directory: directory)
        let authenticator = try BasicCredentials(users: users(), store: server.store)
        try await server.test(authenticatedBy: authenticator) { client async throws in
            #expect(
                try await client.send("POST", id: "c1", as: nil, body: entry(), headers: basic("alice:wonderland:1"))
                    .status == .created)
        }
    }

    @Test(
        "A mistake is refused with 401 and a challenge",
        arguments: [
            "Basic YWxpY2U6d3Jvbmc=", "Basic YWxpY2U6", "Basic bm9ib2R5Ong=", "Basic Ym9iOng=", "Basic", "Basic ",
            "Basic !!!",
            "Basic YWxpY2U=", "Basic /w==", "Bearer YWxpY2U6d29uZGVybGFuZDox", "",
        ])
    func mistakes(header: String) async throws {
        let server = try TestServer(directory: directory)
        let authenticator = try BasicCredentials(users: users(), store: server.store)
        try await server.test(authenticatedBy: authenticator) { client async throws in
            let response = try await client.send("POST", as: nil, body: entry(), headers: [.authorization: header])
            #expect(response.status == .unauthorized)
            #expect(response.headers[.wwwAuthenticate]?.hasPrefix("Basic realm=") == true)
        }
    }

    @Test("An activation code registers a user once, with the password of that registration")
    func activation() async throws {
        let server = try TestServer(directory: directory)
        let authenticator = try BasicCredentials(users: users(), store: server.store)
        try await server.test(authenticatedBy: authenticator) { client async throws in
            func register(_ password: String, code: String?, body: String = entry(), method: String = "POST")
                async throws -> Int
            {
                var headers = basic("bob:\(password)")
                headers["X-Activation-Code"] = code
                return try await client.send(method, id: "c1", as: nil, body: body, headers: headers).status.code
            }
            #expect(try await register("secret", code: nil) == 401)
            #expect(try await register("secret", code: "wrong") == 401)
            #expect(try await register("code", code: nil) == 401)
            #expect(try await register("", code: "code") == 401)
            #expect(try await register("secret", code: "code", method: "PUT") == 401)
            // The registration fails, and leaves the code as it is.
            #expect(try await register("typo", code: "code", body: "<entry>") == 400)
            #expect(try await register("secret", code: "code") == 201)
            // The answer was lost.
            #expect(try await register("secret", code: "code") == 200)
            #expect(try await register("secret", code: nil) == 200)
            #expect(try await register("other", code: "code") == 401)
        }
        // A new code in the users file lets the user choose a new password.
        let renewed = try BasicCredentials(users: users(code: "second"), store: server.store)
        try await server.test(authenticatedBy: renewed) { client async throws in
            #expect(try await client.send(id: "c1", as: nil, headers: basic("bob:secret")).status == .unauthorized)
            var headers = basic("bob:new")
            headers["X-Activation-Code"] = "second"
            #expect(try await client.send("POST", id: "c1", as: nil, body: entry(), headers: headers).status == .ok)
            #expect(try await client.send(id: "c1", as: nil, headers: basic("bob:new")).status == .ok)
        }
    }

    @Test("Two activations at once: one consumes the code")
    func activationRace() async throws {
        let server = try TestServer(directory: directory)
        let authenticator = try BasicCredentials(users: users(), store: server.store)
        try await server.test(authenticatedBy: authenticator) { client async throws in
            let statuses = try await withThrowingTaskGroup { group in
                for number in 0..<4 {
                    var headers = basic("bob:secret\(number)")
                    headers["X-Activation-Code"] = "code"
                    group.addTask { [headers] in
                        try await client.send("POST", id: "c\(number)", as: nil, body: entry(), headers: headers).status
                            .code
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(statuses.sorted() == [201, 401, 401, 401])
        }
        #expect(try await server.store.list(before: nil, limit: 10).total == 1)
    }

    @Test(
        "A malformed users file is an error with the line",
        arguments: [
            "alice", "alice:password:x", "alice:other:HASH", ":password:HASH",
            "alice:password:HASH\nalice:password:HASH",
            "alice:password:scrypt$40$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAA==",
            "alice:password:scrypt$14$8$1$$", "alice:password:HASH:",
        ])
    func usersFile(text: String) throws {
        let hash = "scrypt$14$8$1$AAAAAAAAAAAAAAAAAAAAAA==$AAAAAAAAAAAAAAAAAAAAAA=="
        let text = text.replacing("HASH", with: hash)
        let failure = #expect(throws: ConfigurationError.self) { try Users(parsing: text) }
        #expect(failure?.description.hasPrefix("users:") == true)
    }
}
