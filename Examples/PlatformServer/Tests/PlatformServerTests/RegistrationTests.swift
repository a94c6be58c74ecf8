import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import PlatformServer

@Suite("The registration protocol")
struct RegistrationTests {
    let directory = TemporaryDirectory()

    @Test("A connection is created, read, updated and deleted")
    func lifeCycle() async throws {
        try await TestServer(directory: directory).test { client async throws in
            let created = try await client.send("POST", id: "c1", body: entry("<d:DeviceType>Linux</d:DeviceType>"))
            #expect(created.status == .created)
            #expect(created.headers[.location] == "/odata/applications/latest/demo/Connections('c1')")
            let cookie = try #require(created.headers[.setCookie]).split(separator: "; ")
            #expect(cookie.first == "X-SMP-APPCID=c1" && Set(cookie.dropFirst()) == ["Path=/", "Secure", "HttpOnly"])
            #expect(created.headers[.contentType] == "application/atom+xml; charset=UTF-8")
            #expect(created.text.contains("<d:ApplicationConnectionId>c1</d:ApplicationConnectionId>"))

            let read = try await client.send(id: "c1")
            #expect(read.status == .ok)
            #expect(read.text.contains("<d:DeviceType>Linux</d:DeviceType>"))
            #expect(read.text.contains(#"<d:PasswordPolicyMinLength m:type="Edm.Int32">8</d:PasswordPolicyMinLength>"#))

            let merged = try await client.send(
                "MERGE", id: "c1", body: entry("<d:DeviceModel>A &amp; B</d:DeviceModel>"))
            #expect(merged.status == .ok)
            #expect(merged.text.contains("<d:DeviceType>Linux</d:DeviceType>"))
            #expect(merged.text.contains("<d:DeviceModel>A &amp; B</d:DeviceModel>"))

            let replaced = try await client.send("PUT", id: "c1", body: entry("<d:DeviceType>BSD</d:DeviceType>"))
            #expect(replaced.text.contains("<d:DeviceType>BSD</d:DeviceType>"))
            #expect(replaced.text.contains(#"<d:DeviceModel m:null="true">"#))

            #expect(try await client.send("DELETE", id: "c1").status == .ok)
            #expect(try await client.send("DELETE", id: "c1").status == .notFound)
            #expect(try await client.send(id: "c1").status == .notFound)
        }
    }

    @Test("The id may be a cookie, and part of the URL, with escapes")
    func idInOtherPlaces() async throws {
        try await TestServer(directory: directory).test { client async throws in
            let created = try await client.send("POST", body: entry(), headers: [.cookie: "X-SMP-APPCID=c1; other=1"])
            #expect(created.status == .created)
            for path in ["Connections('c1')", "Connections(%27c1%27)"] {
                let read = try await client.send(id: "c1", path: "/odata/applications/v1/demo/\(path)")
                #expect(read.status == .ok)
                #expect(read.text.contains("<id>/odata/applications/v1/demo/Connections(&#39;c1&#39;)</id>"))
            }
            let another = try await client.send(id: "c1", path: "/odata/applications/v1/demo/Connections('c2')")
            #expect(another.status == .forbidden)
        }
    }

    @Test("The server chooses an id if the client proposes none")
    func chosenID() async throws {
        try await TestServer(directory: directory).test { client async throws in
            let first = try await client.send("POST", body: entry())
            let second = try await client.send("POST", body: entry())
            #expect(first.status == .created && second.status == .created)
            #expect(first.headers[.setCookie] != second.headers[.setCookie])
        }
    }

    @Test("A repeated registration with the same id is the same connection, after a restart, too")
    func repetition() async throws {
        try await TestServer(directory: directory).test { client async throws in
            #expect(try await client.send("POST", id: "c1", body: entry()).status == .created)
            #expect(try await client.send("POST", id: "c1", body: entry()).status == .ok)
        }
        let restarted = try TestServer(directory: directory)
        try await restarted.test { client async throws in
            #expect(try await client.send("POST", id: "c1", body: entry()).status == .ok)
        }
        #expect(try await restarted.store.list(before: nil, limit: 10).total == 1)
    }

    @Test("32 registrations at once with one id make one connection")
    func concurrentRepetition() async throws {
        let server = try TestServer(directory: directory)
        let created = try await server.test { client async throws in
            try await withThrowingTaskGroup { group in
                for _ in 0..<32 { group.addTask { try await client.send("POST", id: "c1", body: entry()).status } }
                return try await group.reduce(into: 0) { count, status in
                    #expect([.created, .ok].contains(status))
                    if status == .created { count += 1 }
                }
            }
        }
        #expect(created == 1)
        #expect(try await server.store.list(before: nil, limit: 10).total == 1)
    }

    @Test("Of two principals at once, one gets the id")
    func race() async throws {
        let server = try TestServer(directory: directory)
        try await server.test { client async throws in
            for round in 0..<16 {
                async let alice = client.send("POST", id: "c\(round)", as: "alice", body: entry()).status
                async let bob = client.send("POST", id: "c\(round)", as: "bob", body: entry()).status
                #expect(Set(try await [alice, bob]) == [.created, .forbidden])
            }
        }
        #expect(try await server.store.list(before: nil, limit: 100).total == 16)
    }

    @Test(
        "Another principal, or another application, cannot use the connection",
        arguments: ["GET", "PUT", "DELETE", "POST"])
    func othersConnection(method: String) async throws {
        try await TestServer(directory: directory).test { client async throws in
            #expect(try await client.send("POST", id: "c1", body: entry()).status == .created)
            let body = method == "GET" || method == "DELETE" ? nil : entry()
            #expect(try await client.send(method, id: "c1", as: "bob", body: body).status == .forbidden)
            let path = "/odata/applications/latest/other/Connections"
            #expect(try await client.send(method, id: "c1", body: body, path: path).status == .forbidden)
            #expect(try await client.send(id: "c1").status == .ok)
        }
    }

    struct Mistake: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var status: Int
        var method = "POST"
        var id: String? = "c1"
        var principal: String? = "alice"
        var path = "/odata/applications/latest/demo/Connections"
        var type: String? = "application/atom+xml; charset=UTF-8"
        var body: String? = entry()
        var cookie: String?
    }

    static let mistakes = [
        Mistake(testDescription: "no authentication", status: 401, principal: nil),
        Mistake(
            testDescription: "unknown application", status: 404, path: "/odata/applications/latest/nope/Connections"),
        Mistake(testDescription: "unknown version", status: 404, path: "/odata/applications/v2/demo/Connections"),
        Mistake(testDescription: "unknown collection", status: 404, path: "/odata/applications/v1/demo/Users"),
        Mistake(
            testDescription: "malformed id in the URL", status: 404,
            path: "/odata/applications/v1/demo/Connections('a b')"),
        Mistake(
            testDescription: "malformed escape", status: 404, path: "/odata/applications/v1/demo/Connections('%zz')"),
        Mistake(testDescription: "wrong method", status: 405, method: "PATCH"),
        Mistake(
            testDescription: "POST to a connection", status: 405, path: "/odata/applications/v1/demo/Connections('c1')"),
        Mistake(testDescription: "wrong content type", status: 415, type: "application/json"),
        Mistake(testDescription: "no content type", status: 415, type: nil),
        Mistake(testDescription: "malformed id", status: 400, id: "a/b"),
        Mistake(testDescription: "long id", status: 400, id: String(repeating: "a", count: 129)),
        Mistake(testDescription: "empty id", status: 400, id: ""),
        Mistake(testDescription: "header and cookie differ", status: 400, cookie: "X-SMP-APPCID=c2"),
        Mistake(testDescription: "malformed body", status: 400, body: "<entry>"),
        Mistake(testDescription: "no body", status: 400, body: nil),
        Mistake(testDescription: "long body", status: 413, body: String(repeating: " ", count: 65537)),
        Mistake(testDescription: "unknown property", status: 400, body: entry("<d:Nope>1</d:Nope>")),
        Mistake(testDescription: "read without an id", status: 403, method: "GET", id: nil, body: nil),
        Mistake(testDescription: "read of an unknown id", status: 404, method: "GET", body: nil),
        Mistake(testDescription: "update of an unknown id", status: 404, method: "MERGE"),
        Mistake(testDescription: "update with a malformed body", status: 400, method: "PUT", body: "{}"),
    ]

    @Test("A mistake has a status and a sentence, and changes nothing", arguments: mistakes)
    func mistake(_ mistake: Mistake) async throws {
        let server = try TestServer(directory: directory)
        try await server.test { client async throws in
            let response = try await client.send(
                mistake.method, id: mistake.id, as: mistake.principal, body: mistake.body, path: mistake.path,
                type: mistake.type, headers: mistake.cookie.map { [.cookie: $0] } ?? [:])
            #expect(response.status.code == mistake.status)
            #expect(response.headers[.contentType] == "text/plain; charset=UTF-8")
            #expect(response.text.hasSuffix("\n") && response.text.count < 200)
            if mistake.status == 405 { #expect(response.headers[.allow] != nil) }
        }
        #expect(try await server.store.list(before: nil, limit: 10).total == 0)
    }

    @Test("An application's resource greets the principal of a connection only")
    func hello() async throws {
        try await TestServer(directory: directory).test { client async throws in
            #expect(try await client.send("POST", id: "c1", body: entry()).status == .created)
            let path = "/odata/demo/Hello"
            let greeting = try await client.send(id: "c1", path: path)
            #expect(greeting.status == .ok)
            #expect(
                greeting.text == #"{"principal":"alice","connection":"c1"}"#
                    || greeting.text == #"{"connection":"c1","principal":"alice"}"#)
            #expect(try await client.send(path: path).status == .forbidden)
            #expect(try await client.send(id: "c2", path: path).status == .forbidden)
            #expect(try await client.send(id: "c1", as: "bob", path: path).status == .forbidden)
            #expect(try await client.send(id: "c1", path: "/odata/other/Hello").status == .forbidden)
            #expect(try await client.send(id: "c1", as: nil, path: path).status == .unauthorized)
            #expect(try await client.send("POST", id: "c1", body: "", path: path).status == .methodNotAllowed)
        }
    }

    @Test("The settings show the configured policy")
    func policy() async throws {
        var policy = PasswordPolicy()
        for right in ["PasswordPolicyMinLength=12", "PasswordPolicyDigitRequired=true"] {
            let isSet = policy.set(right)
            #expect(isSet)
        }
        for wrong in [
            "Nope=1", "PasswordPolicyMinLength=x", "PasswordPolicyMinLength=-1", "PasswordPolicyMinLength",
            "PasswordPolicyEnabled=1",
        ] {
            let isSet = policy.set(wrong)
            #expect(!isSet)
        }
        try await TestServer(directory: directory, policy: policy).test { client async throws in
            let created = try await client.send("POST", id: "c1", body: entry())
            #expect(
                created.text.contains(#"<d:PasswordPolicyMinLength m:type="Edm.Int32">12</d:PasswordPolicyMinLength>"#))
            #expect(
                created.text.contains(
                    #"<d:PasswordPolicyDigitRequired m:type="Edm.Boolean">true</d:PasswordPolicyDigitRequired>"#))
        }
    }

    @Test("The database notes when a connection was last seen, to the minute")
    func lastSeen() async throws {
        let start = Date(timeIntervalSince1970: 1_800_000_000)
        for (seconds, noted) in [(30, 0), (90, 90)] {
            let directory = TemporaryDirectory()
            let id = try #require(ConnectionID("c1"))
            let store = try ConnectionStore(directory: directory.path)
            let alice = Principal(user: "alice")
            _ = try await store.register(
                id, application: "demo", principal: alice, properties: [:], activation: nil, at: start)
            _ = try await store.connection(
                id, application: "demo", principal: alice, at: start + TimeInterval(seconds))
            let stored = try await store.list(before: nil, limit: 1).connections
            #expect(stored.first?.lastSeen == start + TimeInterval(noted))
        }
    }
}
