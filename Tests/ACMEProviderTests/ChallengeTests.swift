import CertificateProviding
import Enrolment
import Foundation
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import ACMEProvider

/// The answers to challenges: their content, and the mistakes of this host.
@Suite struct ChallengeTests {
    private let person = NoUserInteraction()
    private static let threads = BlockingExecutor.threads(maximum: 4)

    private func answer(
        _ kind: String, _ type: String = "dns", _ name: String = "host.example", token: String = "token-1"
    ) throws -> ChallengeAnswer {
        let text = """
            {"identifier": {"type": "\(type)", "value": "\(name)"}, "status": "pending", "challenges":
            [{"type": "\(kind)", "url": "https://ca.example/1", "status": "pending", "token": "\(token)"}]}
            """
        let authorization = try JSONDecoder().decode(ACMEAuthorization.self, from: Data(text.utf8))
        let identifier = try #require(try ACMEIdentifier.list("\(type):\(name)").first)
        return try ChallengeAnswer(authorization.challenges[0], for: identifier, thumbprint: "thumb")
    }

    private func open(
        _ kind: ChallengeListener.Kind, _ address: String, _ parameter: String
    ) async throws -> ChallengeListener {
        try await .open(kind, try ListenAddress(address), parameter, on: MultiThreadedEventLoopGroup.singleton)
    }

    private func run(_ arguments: [String]) async throws -> String {
        try await Self.threads.run { () throws(ProviderError) in
            do {
                let output = try Subprocess(arguments, in: "/", .captured(input: []), seconds: 600).wait()
                return output.stdout + output.stderr
            } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
    }

    @Test("The listener of http-01 answers the token's path, and nothing else, and is gone when it is closed")
    func theHTTPListener() async throws {
        let port = try ReservedPort()
        let listener = try await open(.http, "127.0.0.1:\(port)", "http-listen")
        try listener.answer([try answer("http-01")], at: Date())
        let url = "http://127.0.0.1:\(port)/.well-known/acme-challenge/"
        func get(_ path: String, _ more: String...) async throws -> String {
            try await run(
                ["curl", "--silent", "--path-as-is", "--write-out", " %{http_code}"] + more + [path])
        }
        #expect(try await get(url + "token-1") == "token-1.thumb 200")
        #expect(try await get(url + "token-1?x") == "token-1.thumb 200")
        #expect(try await get(url + "token-2") == " 404")
        #expect(try await get(url + "../acme-challenge/token-1") == " 404")
        #expect(try await get("http://127.0.0.1:\(port)/") == " 404")
        #expect(try await get(url + "token-1", "--data", "x") == " 404")
        await listener.close()
        #expect(try await get(url + "token-1") == " 000")
    }

    @Test(
        "The listener of tls-alpn-01 has a certificate with the proof for each name",
        arguments: [
            ("dns", "host.example", "host.example"), ("ip", "192.0.2.7", "7.2.0.192.in-addr.arpa"),
            (
                "ip", "2001:db8::1", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa"
            ),
        ])
    func theTLSListener(type: String, value: String, name: String) async throws {
        let port = try ReservedPort()
        let listener = try await open(.tls, "127.0.0.1:\(port)", "tls-listen")
        let answer = try answer("tls-alpn-01", type, value)
        try listener.answer([answer], at: Date())
        let connect = ["openssl", "s_client", "-connect", "127.0.0.1:\(port)", "-servername"]
        let shown = try await run(connect + [name, "-alpn", "acme-tls/1"])
        #expect(shown.contains("ALPN protocol: acme-tls/1"), "\(shown)")
        let pem = String(shown[try #require(shown.range(of: "-----BEGIN")).lowerBound...])
        let leaf = try #require(try X509Certificate.certificates(pem: pem).first)
        #expect(leaf.subjectAlternativeNames.map(\.description) == ["\(type):\(value)"])
        let text = String(
            decoding: try Subprocess.run(
                ["openssl", "x509", "-noout", "-text"], input: Array(leaf.pemRepresentation.utf8)), as: UTF8.self)
        #expect(text.contains("1.3.6.1.5.5.7.1.31: critical"), "\(text)")
        let digest = DisplayText.hexadecimal([0x04, 0x20] + answer.digest)
        #expect(DisplayText.hexadecimal(leaf.derRepresentation).contains(digest))
        // Another name gets no certificate.
        #expect(try await run(connect + ["other.example", "-alpn", "acme-tls/1"]).contains("no peer certificate"))
        await listener.close()
    }

    @Test("A port that is taken names the process that has it, and the order is gone on with afterwards")
    func aTakenPort() async throws {
        let host = try Host()
        let port = try ReservedPort()
        let other = try await open(.http, "127.0.0.1:\(port)", "http-listen")
        let changes: [String: String?] = ["http-root": nil, "http-listen": "127.0.0.1:\(port)"]
        let error = try #require(await failure { _ = try await host.provider(changes).getCertificate(person) })
        #expect(
            error.code == .operationNotAllowed && error.message.contains("(process \(getpid())) has it"), "\(error)")
        #expect(error.message.contains("'http-listen'") && error.nativeCode == Int(EADDRINUSE))
        await other.close()
        // With the document root the server can look.
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1)
    }

    @Test("The process that has a port is found beside many other listeners, and not a child that has its sockets")
    func aPortAmongMany() throws {
        let sockets = (0..<60).map { _ in socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0) }
        defer { sockets.forEach { close($0) } }
        let ports = try sockets.map { descriptor in
            try #require(listen(descriptor, 1) == 0)
            var address = sockaddr_in()
            var size = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isNamed = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) == 0 }
            }
            try #require(isNamed)
            return Int(UInt16(bigEndian: address.sin_port))
        }
        // Its number may be the lower one.
        let child = Process()
        (child.executableURL, child.arguments) = (URL(filePath: "/bin/sleep"), ["60"])
        child.standardInput = FileHandle(fileDescriptor: sockets[0], closeOnDealloc: false)
        try child.run()
        defer {
            kill(child.processIdentifier, SIGKILL)
            child.waitUntilExit()
        }
        for port in ports {
            let name = try #require(PortHolder.name(ofPort: port))
            #expect(name.hasSuffix("(process \(getpid()))"), "\(name)")
        }
    }

    @Test(
        "A port that this process may not open is a mistake of the configuration, and one that is taken is to be tried again",
        arguments: [
            (EACCES, "http-listen", ProviderError.Code.configurationInvalid, "set 'http-root'"),
            (EPERM, "tls-listen", .configurationInvalid, "the drop-in of the page ACME"),
            (EADDRNOTAVAIL, "http-listen", .configurationInvalid, "check 'http-listen'"),
            (EADDRINUSE, "http-listen", .operationNotAllowed, "has it"),
        ])
    func aPortThatCannotBeOpened(
        reason: CInt, parameter: String, code: ProviderError.Code, part: String
    ) throws {
        let error = ChallengeListener.failure(IOError(errnoCode: reason, reason: "bind"), .port(80), parameter)
        #expect(error.code == code && error.message.contains(part) && !error.message.contains("root may"), "\(error)")
        #expect(error.nativeCode == Int(reason))
    }

    @Test("An address that this host does not have is an error that names the parameter")
    func aForeignAddress() async throws {
        let error = try #require(
            await failure {
                _ = try await open(.http, "192.0.2.1:30000", "http-listen")
            })
        #expect(error.message.contains("192.0.2.1:30000") && error.message.contains("check 'http-listen'"), "\(error)")
    }

    @Test("Without an address, both families are listened on")
    func bothFamilies() async throws {
        let port = try ReservedPort()
        let listener = try await open(.http, "\(port)", "http-listen")
        try listener.answer([try answer("http-01")], at: Date())
        for host in ["127.0.0.1", "[::1]"] {
            let url = "http://\(host):\(port)/.well-known/acme-challenge/token-1"
            #expect(try await run(["curl", "--silent", url]) == "token-1.thumb")
        }
        await listener.close()
    }

    @Test("A document root that is missing is not made, and a link in it is not followed")
    func theDocumentRoot() async throws {
        let host = try Host()
        let missing = host.directory["missing"]
        let error = try #require(
            await failure { _ = try await host.provider(["http-root": missing]).getCertificate(person) })
        #expect(error.code == .storeWriteFailed && error.message.contains("Check 'http-root'"), "\(error)")
        #expect(!FileManager.default.fileExists(atPath: missing))
        // The token's name as a link to another file.
        let victim = try host.directory.write(Array("precious".utf8), to: "victim")
        let directory = host.directory.path + "/.well-known/acme-challenge"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        host.server.behave { $0.token = "linked" }
        host.server.state.withLock { $0.orders = [:] }
        #expect(symlink(victim, directory + "/linked") == 0)
        _ = try await host.provider().getCertificate(person)
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "precious" && host.challenges.isEmpty)
    }

    private static let otherUser: uid_t = 65_534

    @Test(
        "A link of another user in the document root is not followed: no file of this one is made, replaced, removed or opened to others",
        .enabled(if: geteuid() == 0, "only root can give a directory away"),
        arguments: [".well-known", ".well-known/acme-challenge", "root"])
    func aLinkOfAnotherUser(place: String) async throws {
        let host = try Host()
        let folder = host.directory["etc"]
        try FileManager.default.createDirectory(atPath: folder + "/acme-challenge", withIntermediateDirectories: true)
        // The link leads to a file with the name that the server chooses.
        for name in ["shadow", "acme-challenge/shadow"] {
            try host.directory.write(Array("root:x".utf8), to: "etc/" + name)
        }
        chmod(folder + "/acme-challenge", 0o700)
        chmod(folder, 0o700)
        let theirs = host.directory["theirs"]
        let www = place == "root" ? theirs + "/www" : theirs
        try FileManager.default.createDirectory(atPath: theirs + "/.well-known", withIntermediateDirectories: true)
        switch place {
        case "root": #expect(symlink(folder, www) == 0 && lchown(www, Self.otherUser, Self.otherUser) == 0)
        case ".well-known":
            #expect(rmdir(theirs + "/.well-known") == 0 && symlink(folder, theirs + "/.well-known") == 0)
        default: #expect(symlink(folder, theirs + "/" + place) == 0)
        }
        for path in [theirs, theirs + "/.well-known"] { lchown(path, Self.otherUser, Self.otherUser) }
        host.server.behave { $0.token = "shadow" }
        let error = try #require(
            await failure { _ = try await host.provider(["http-root": www]).getCertificate(person) })
        #expect(
            error.code == .storeWriteFailed && error.message.contains("symbolic link that another user"), "\(error)")
        for name in ["shadow", "acme-challenge/shadow"] {
            #expect(try String(contentsOfFile: folder + "/" + name, encoding: .utf8) == "root:x")
        }
        for path in [folder, folder + "/acme-challenge"] {
            #expect(try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int == 0o700)
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: folder).sorted() == ["acme-challenge", "shadow"])
    }

    @Test(
        "The clean-up after a kill follows no link that another user has put there since",
        .enabled(if: geteuid() == 0, "only root can give a directory away"))
    func theCleanUpFollowsNoLink() async throws {
        let host = try Host()
        let www = host.directory["www"]
        try FileManager.default.createDirectory(atPath: www, withIntermediateDirectories: true)
        chown(www, Self.otherUser, Self.otherUser)
        let environment = host.environment()
        let parameters = ProviderParameters([
            "directory": .init(host.server.directoryURL), "identifiers": .init("dns:host.example"),
            "http-root": .init(www),
        ])
        let settings = try ACMESettings(try ACMEProvider.descriptor.check(parameters, environment))
        try await ChallengeResponder(settings, environment).begin([try answer("http-01", token: "shadow")])
        // Another user's document root, with a directory of its own for the answers, is used as any other.
        #expect(
            try String(contentsOfFile: www + "/.well-known/acme-challenge/shadow", encoding: .utf8) == "shadow.thumb")
        try FileManager.default.createDirectory(
            atPath: host.directory["etc/acme-challenge"], withIntermediateDirectories: true)
        let victim = try host.directory.write(Array("root:x".utf8), to: "etc/acme-challenge/shadow")
        #expect(rename(www + "/.well-known", www + "/moved") == 0)
        #expect(symlink(host.directory["etc"], www + "/.well-known") == 0)
        await ChallengeResponder(settings, environment).cleanUp()
        #expect(try String(contentsOfFile: victim, encoding: .utf8) == "root:x")
        #expect(host.log.warnings.contains { $0.contains("could not be removed") })
        #expect(unlink(www + "/.well-known") == 0 && rename(www + "/moved", www + "/.well-known") == 0)
        await ChallengeResponder(settings, environment).cleanUp()
        #expect(!host.records.contains { $0.hasPrefix("challenges-") })
        #expect(!FileManager.default.fileExists(atPath: www + "/.well-known/acme-challenge/shadow"))
    }

    @Test(
        "A challenge that a killed run has left is removed by the next, or with the identity", arguments: [true, false])
    func whatAKilledRunHasLeft(isDeleted: Bool) async throws {
        let host = try Host()
        // The process ends while the server looks.
        host.server.behave { $0.looks = 10_000 }
        let environment = host.environment()
        let parameters = ProviderParameters([
            "directory": .init(host.server.directoryURL), "identifiers": .init("dns:host.example"),
            "http-root": .init(host.directory.path),
        ])
        let settings = try ACMESettings(try ACMEProvider.descriptor.check(parameters, environment))
        let responder = ChallengeResponder(settings, environment)
        try await responder.begin([try answer("http-01", token: "left")])
        #expect(host.challenges == ["left"])
        let mode =
            try FileManager.default.attributesOfItem(
                atPath: host.directory.path + "/.well-known/acme-challenge/left")[.posixPermissions] as? Int
        #expect(mode == 0o644)
        host.server.behave { $0.looks = 0 }
        if isDeleted {
            try host.provider().deleteStoredCertificate()
        } else {
            _ = try await host.provider().getCertificate(person)
        }
        #expect(host.challenges.isEmpty && !host.records.contains { $0.hasPrefix("challenges-") })
    }

    /// A host whose hook notes its arguments, and then runs a line.
    private func host(hook line: String) throws -> (Host, [String: String?], log: String) {
        let host = try Host()
        let log = host.directory["hook.log"]
        let hook = try host.directory.install("hook", Array("#!/bin/sh\necho \"$@\" >> \(log)\n\(line)\n".utf8))
        return (host, ["challenge": "dns-01", "http-root": nil, "dns-hook": hook], log)
    }

    @Test("The hook of dns-01 adds and removes the record, and a wildcard has that of its domain")
    func theHook() async throws {
        let (host, changes, log) = try host(hook: "exit 0")
        host.server.behave { $0.refusal = "dns" }
        var all = changes
        all["identifiers"] = "dns:*.host.example"
        let error = try #require(await failure { _ = try await host.provider(all).getCertificate(person) })
        #expect(error.message.contains("check the name's DNS records"), "\(error)")
        #expect(error.message.contains("*.host.example"), "\(error)")
        let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n").map {
            $0.split(separator: " ")
        }
        #expect(
            lines.map { $0.prefix(2).joined(separator: " ") } == [
                "add _acme-challenge.host.example", "remove _acme-challenge.host.example",
            ])
        #expect(lines[0][2] == lines[1][2] && lines[0][2].count == 43)
    }

    @Test("A hook that fails, or cannot be run, ends the run with the end of its output, and the order is gone on with")
    func aFailingHook() async throws {
        let (host, changes, log) = try host(hook: "printf 'no such zone\\n\\033[2J%01000d' 7; exit 3")
        let error = try #require(await failure { _ = try await host.provider(changes).getCertificate(person) })
        #expect(error.code == .unavailable && error.message.contains("failed with status 3"), "\(error)")
        #expect(!error.message.unicodeScalars.contains("\u{1b}") && error.message.count < 1500)
        #expect(host.log.warnings.contains { $0.contains("could not be removed") })
        var missing = changes
        missing["dns-hook"] = "/nonexistent/hook"
        let second = try #require(await failure { _ = try await host.provider(missing).getCertificate(person) })
        #expect(second.message.contains("cannot be started: No such file"), "\(second)")
        // The hook works again. It removes the records of the others, too.
        _ = try host.directory.install("hook", Array("#!/bin/sh\necho \"$@\" >> \(log)\n".utf8))
        host.server.state.withLock { state in
            for name in state.authorizations.keys { state.authorizations[name]?.status = "valid" }
        }
        _ = try await host.provider(changes).getCertificate(person)
        #expect(host.server.count(of: "newOrder") == 1)
        #expect(!host.records.contains { $0.hasPrefix("challenges-") })
    }

    @Test("What a hook has left is removed by the one that is configured, and each failure is a warning once in a run")
    func aCorrectedHook() async throws {
        let (host, changes, log) = try host(hook: "exit 7")
        var wrong = changes
        wrong["dns-hook"] = "/nonexistent/hook"
        for count in 1...2 {
            let error = try #require(await failure { _ = try await host.provider(wrong).getCertificate(person) })
            #expect(error.message.contains("goes on with the same order"), "\(error)")
            #expect(host.log.warnings.count { $0.contains("could not be removed") } == count)
        }
        #expect(!host.log.warnings.contains { $0.contains("same order") })
        _ = try host.directory.install("hook", Array("#!/bin/sh\necho \"$@\" >> \(log)\n".utf8))
        host.server.state.withLock { state in
            for name in state.authorizations.keys { state.authorizations[name]?.status = "valid" }
        }
        _ = try await host.provider(changes).getCertificate(person)
        let lines = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
        #expect(lines.map { $0.prefix(7) } == ["remove "], "\(lines)")
        #expect(!host.records.contains { $0.hasPrefix("challenges-") })
    }

    @Test("What a hook has left that is neither there nor configured any more is given up, with one warning")
    func aHookThatIsGone() async throws {
        let (host, changes, _) = try host(hook: "exit 7")
        var wrong = changes
        wrong["dns-hook"] = "/nonexistent/hook"
        #expect(await code { _ = try await host.provider(wrong).getCertificate(person) } == .unavailable)
        for _ in 1...2 { _ = try await host.provider().getCertificate(person) }
        #expect(
            host.log.warnings.count { $0.contains("remove it from its zone yourself") } == 1, "\(host.log.warnings)")
        #expect(!host.records.contains { $0.hasPrefix("challenges-") })
    }

    @Test("Bytes in the output of a hook that are not text are replaced")
    func outputThatIsNotText() async throws {
        let (host, changes, _) = try host(hook: "printf '\\377\\376garbage\\200'; exit 3")
        let error = try #require(await failure { _ = try await host.provider(changes).getCertificate(person) })
        #expect(error.message.contains("failed with status 3: \u{fffd}\u{fffd}garbage\u{fffd}."), "\(error)")
    }

    @Test("Connections that say nothing leave room for the server's look: the oldest are closed")
    func aFloodOfConnections() async throws {
        let port = try ReservedPort()
        let listener = try await open(.http, "127.0.0.1:\(port)", "http-listen")
        try listener.answer([try answer("http-01")], at: Date())
        let number = UInt16(port.number)
        let sockets = try await Self.threads.run { () throws(ProviderError) in
            (0..<200).map { _ in
                let socket = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
                var address = sockaddr_in()
                address.sin_family = sa_family_t(AF_INET)
                address.sin_port = number.bigEndian
                address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
                let size = socklen_t(MemoryLayout<sockaddr_in>.size)
                let connected = withUnsafePointer(to: address) {
                    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { connect(socket, $0, size) }
                }
                return connected == 0 ? socket : -1
            }
        }
        defer { for socket in sockets { Glibc.close(socket) } }
        #expect(!sockets.contains(-1))
        let url = "http://127.0.0.1:\(port)/.well-known/acme-challenge/token-1"
        #expect(try await run(["curl", "--silent", url]) == "token-1.thumb")
        let (first, last) = (sockets[0], sockets[199])
        let ends = try await Self.threads.run { () throws(ProviderError) in
            var byte: UInt8 = 0
            // Until it is closed.
            let closed = recv(first, &byte, 1, 0)
            return (closed, recv(last, &byte, 1, CInt(MSG_DONTWAIT)))
        }
        #expect(ends.0 <= 0 && ends.1 == -1, "\(ends)")
        await listener.close()
    }
}
