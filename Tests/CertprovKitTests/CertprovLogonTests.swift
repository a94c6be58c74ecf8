import Foundation
import IdentityFiles
import Logging
import MetricsTestKit
import NIOSSL
import ServiceLifecycle
import TestSupport
import Testing
import X509

@testable import CertprovKit

@Suite(.timeLimit(.minutes(20))) struct CertprovLogonTests {
    private let directory: TemporaryDirectory
    private let authority: TestAuthority

    init() throws { (directory, authority) = (try TemporaryDirectory(), try TestAuthority()) }

    /// Writes a PKCS#12 file with a new identity, and the property file that names it.
    private func configure(
        _ more: String = "", name: String = "client", expires: Date = Date(timeIntervalSinceNow: 86_400),
        from start: Date = Date(timeIntervalSinceNow: -172_800), isForServers: Bool = false
    ) throws -> String {
        let identity = try authority.issue(
            name, notBefore: start, notAfter: expires, for: isForServers ? [.serverAuth] : nil)
        let exporter = try #require(identity.key.exporter)
        let key = try exporter.pkcs8Representation().withUnsafeBytes { Array($0) }
        try directory.write(key, to: "key.p8")
        try directory.write(Array(identity.certificateChain.map(\.pemRepresentation).joined().utf8), to: "chain.pem")
        try directory.write(Array(authority.root.pemRepresentation.utf8), to: "ca.pem")
        try Subprocess.run(
            ["openssl", "pkey", "-inform", "DER", "-in", "key.p8", "-out", "key.pem"], in: directory.path)
        try Subprocess.run(
            [
                "openssl", "pkcs12", "-export", "-inkey", "key.pem", "-in", "chain.pem", "-passout", "pass:s3cret",
                "-out", "\(name).p12",
            ], in: directory.path)
        return try directory.write(
            Array(
                """
                CertificateProvider = pkcs12
                CertificateProvider.pkcs12.path = \(directory["\(name).p12"])
                CertificateProvider.pkcs12.password-source = env:PASSWORD
                \(more)
                """.utf8), to: "clienthub.properties")
    }

    private func logon(
        _ path: String, keyStores: [KeyStoreDescriptor] = [], sections: [SettingsSection] = []
    ) throws -> CertprovLogon {
        try CertprovLogon(
            configuredBy: path, keyStores: keyStores, sections: sections,
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            secrets: SecretReader { $0 == "PASSWORD" ? "s3cret" : nil },
            store: IdentityStore(path: directory["state"])
        ) { [directory] id, policy throws(ProviderError) in
            try DataVault(applicationID: id, stateDirectory: directory["state"], policy: policy)
        }
    }

    @Test("The name of an identity is that of its property file, or the program's") func theNameInMetrics() throws {
        let path = try configure()
        #expect(try logon(path).name == "clienthub")
        for (file, name) in [("web", "web"), ("a.b.properties", "a.b"), (".properties", ".properties")] {
            try FileManager.default.copyItem(atPath: path, toPath: directory[file])
            #expect(try logon(directory[file]).name == name)
        }
    }

    @Test("a service takes a property file with the keys of signing requests, which it does not read")
    func signingRequestsAreOfOtherPrograms() async throws {
        let logon = try logon(configure("Signing.client.1.name = Bank\nSigning.prompt = queue"))
        #expect(logon.manager.configuration.warnings.isEmpty)
        #expect(try await logon.manager.identity(NoUserInteraction()).certificate.subject.contains("client"))
        await logon.manager.shutdown()
        let misspelt = try configure("Sining.prompt = queue")
        let refusal = try #require(throws: ProviderError.self) { try self.logon(misspelt) }
        #expect(refusal.code == .configurationInvalid && refusal.message.contains("looks like 'Signing.…'"))
    }

    @Test("a program has settings, providers and sealed records of its own, beside those of the property file")
    func aProgramHasPartsOfItsOwn() async throws {
        let colour = Parameter<String?>.string("Paint.colour", summary: "The colour.")
        let section = SettingsSection(title: "Paint", namespaces: ["Paint."], [colour.descriptor])
        let path = try configure("Paint.colour = red")
        try Subprocess.run(["cp", "client.p12", "kept.p12"], in: directory.path)
        _ = try configure("Paint.colour = red", name: "other")
        let logon = try logon(path, sections: [section])
        #expect(logon.manager.configuration.settings[colour] == "red")
        #expect(logon.manager.configuration.warnings.isEmpty)
        let wrong = try directory.write(Array("Paint.color = red\n".utf8), to: "wrong.properties")
        let refusal = try #require(throws: ProviderError.self) { try self.logon(wrong, sections: [section]) }
        #expect(refusal.code == .configurationInvalid && refusal.message.contains("Paint.colour"))

        let parameters = ProviderParameters([
            "path": .init(directory["kept.p12"]), "password-source": .init("env:PASSWORD"),
        ])
        let own = try logon.manager(of: [ConfiguredProvider(id: ProviderID("pkcs12"), parameters: parameters)])
        #expect(try await own.identity(NoUserInteraction()).certificate.subject.contains("client"))
        #expect(try await logon.manager.identity(NoUserInteraction()).certificate.subject.contains("other"))
        #expect(throws: ProviderError.self) {
            try logon.manager(of: [ConfiguredProvider(id: ProviderID("nothing"), parameters: parameters)])
        }

        let part = try own.environment(of: ProviderID("paint_")).storage
        try part.updateRecord(named: "can") { _ in SecretBytes(utf8: "half full") }
        #expect(
            try logon.manager.environment(of: ProviderID("paint_")).storage.record(named: "can")
                == SecretBytes(utf8: "half full"))
        await own.shutdown()
        await logon.manager.shutdown()
    }

    /// Files for other programs: at the start, after a renewal, and after a failure.
    @Test func aServiceWritesTheFilesOfItsIdentity() async throws {
        try directory.write(
            Array("#!/bin/sh\necho told >>\(directory["told"])\ntest -e \(directory["well"])\n".utf8), to: "hook.new")
        // By another process: what this one has open for writing, its other children have too, and cannot be executed.
        try Subprocess.run(["install", "-m", "755", "hook.new", "hook"], in: directory.path)
        let files = """
            Files.directory = \(directory["files"])
            Files.key = true
            Files.reload = \(directory["hook"])
            """
        let path = try configure(files)
        let log = TestLog()
        let logon = try CertprovLogon(
            configuredBy: path, logger: log.logger, secrets: SecretReader { $0 == "PASSWORD" ? "s3cret" : nil },
            store: IdentityStore(path: directory["state"]), sleep: { _ in try await Task.sleep(for: .milliseconds(2)) },
            vaults: nil)
        let service = Task { try await logon.renewal.run() }
        defer { service.cancel() }
        func written() -> X509Certificate? {
            try? CertificateFile.read(directory["files/current/certificate.pem"]).first
        }
        func told() -> Int { (try? directory.read("told"))?.count { $0 == 0x0a } ?? 0 }
        let first = try await logon.credentials().current.identity.certificate
        // A failed reload is logged once, and tried again.
        try await eventually { told() >= 3 }
        #expect(written() == first)
        #expect(log.lines.count { $0.message.contains("the files for other programs are not up to date") } == 1)
        try directory.write([], to: "well")
        let pause = FileSetDirectory(path: directory["files"])
        try await eventually { pause.notNotified == nil }

        _ = try configure(files, expires: Date(timeIntervalSinceNow: 172_800), from: Date(timeIntervalSinceNow: -3600))
        try await logon.renewingIdentity().renew()
        let second = try await logon.credentials().current.identity.certificate
        #expect(second != first)
        try await eventually { written() == second && pause.notNotified == nil }
        // Another form, by the property file.
        _ = try configure(files + "\nFiles.formats = der, pem\n", expires: Date(timeIntervalSinceNow: 172_800))
        _ = try await logon.reload()
        try await eventually { (try? directory.read("files/current/key.der")) != nil }
        service.cancel()
        _ = try? await service.value
    }

    @Test("A service ends while a program that is told of files hangs")
    func aHangingProgramHoldsNoEndUp() async throws {
        try directory.write(
            Array(
                "#!/bin/sh\necho $$ >\(directory["pid.new"])\nmv \(directory["pid.new"]) \(directory["pid"])\nexec sleep 1000\n"
                    .utf8), to: "hook.new")
        try Subprocess.run(["install", "-m", "755", "hook.new", "hook"], in: directory.path)
        let logon = try logon(
            try configure("Files.directory = \(directory["files"])\nFiles.reload = \(directory["hook"])"))
        let service = Task { try await logon.renewal.run() }
        func hook() -> pid_t? {
            (try? directory.read("pid")).flatMap { pid_t(String(decoding: $0, as: UTF8.self).dropLast()) }
        }
        try await eventually { hook() != nil }
        let pid = try #require(hook())
        defer { kill(pid, SIGKILL) }
        service.cancel()
        _ = try? await service.value
        #expect(kill(pid, 0) == 0)
    }

    @Test("A gauge says whether the files for other programs are those of the identity")
    func aGaugeForFiles() async throws {
        let logon = try logon(try configure("Files.directory = \(directory["absent/files"])"))
        let metrics = TestMetrics()
        var writer = FilesWriter(
            manager: { logon.manager }, secrets: SecretReader { _ in nil }, executor: .threads(maximum: 1),
            logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
            sleep: { _ in try await Task.sleep(for: .milliseconds(2)) })
        writer.metrics = metrics
        let renewal = try await logon.renewingIdentity()
        let task = Task { [writer] in await writer.run(renewal) }
        defer { task.cancel() }
        func gauge() -> Double? { try? metrics.expectGauge("certprov_files_stale").lastValue }
        try await eventually { gauge() == 1 }
        try Subprocess.run(["mkdir", "absent"], in: directory.path)
        try await eventually { gauge() == 0 }
        #expect(try directory.read("absent/files/current/certificate.pem").isEmpty == false)
        task.cancel()
        await task.value
    }

    /// An application that is not registered yet: its identity is apart from that of the host.
    @Test func anApplicationHasAStoreOfItsOwn() async throws {
        let logon = try logon(try configure("ApplicationId = demo"))
        _ = try await logon.credentials()
        #expect(try await logon.manager.registrationState() == .notRegistered)
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory["state"]) == ["applications"])
    }

    @Test func aPropertyFileGivesTLS() async throws {
        let logon = try logon(try configure("TrustAnchors = \(directory.path)/ca.pem"))
        let tls = try await logon.tls()
        #expect(tls.identity.certificate.subject.contains("CN=client"))
        #expect(try NIOSSLContext(configuration: tls.clientConfiguration()) as NIOSSLContext? != nil)
        #expect(try await logon.tls() === tls)
    }

    @Test("A service does not start with an expired identity, and starts when there is another one")
    func aServiceDoesNotStartWithAnExpiredIdentity() async throws {
        let logon = try logon(try configure(expires: Date(timeIntervalSinceNow: -86_400)))
        // It is in the store the second time.
        for _ in 0..<2 {
            let error = await #expect(throws: ProviderError.self) { _ = try await logon.credentials() }
            #expect(error?.code == .expired && error?.message.contains(directory["client.p12"]) == true)
        }
        _ = try configure()
        #expect(try await logon.credentials().current.identity.certificate.status(at: Date()) == .valid)
    }

    @Test("A service whose certificate is for servers alone warns at its start, unless its usage says so")
    func aServerCertificateWithoutUsage() async throws {
        let path = try configure(isForServers: true)
        for (line, warnings) in [("", 1), ("CertificateProvider.pkcs12.usage = server\n", 0)] {
            let log = TestLog()
            let text = try String(contentsOfFile: path, encoding: .utf8) + line
            let file = try directory.write(Array(text.utf8), to: "service.properties")
            let logon = try CertprovLogon(
                configuredBy: file, logger: log.logger, secrets: SecretReader { $0 == "PASSWORD" ? "s3cret" : nil },
                store: IdentityStore(path: directory["state"]), vaults: nil)
            _ = try await logon.credentials()
            _ = try await logon.credentials()
            #expect(log.warnings.count { $0.contains("set usage = server") } == warnings, "\(log.text)")
            await logon.manager.shutdown()
        }
    }

    @Test("A service starts with an identity that has a superfluous expired certificate in its chain")
    func aServiceStartsWithASuperfluousExpiredCertificate() async throws {
        let path = try configure()
        let older = try TestAuthority.certificate(
            subject: "Test Root", issuer: "Older Root", notAfter: Date(timeIntervalSinceNow: -86_400))
        let chain = try String(contentsOfFile: directory["chain.pem"], encoding: .utf8) + older.pemRepresentation
        try directory.write(Array(chain.utf8), to: "chain.pem")
        try Subprocess.run(
            [
                "openssl", "pkcs12", "-export", "-inkey", "key.pem", "-in", "chain.pem", "-passout", "pass:s3cret",
                "-out", "client.p12",
            ], in: directory.path)
        let identity = try await logon(path).credentials().current.identity
        #expect(identity.certificateChain.count == 3 && identity.status(at: Date()) == .expired)
    }

    @Test("The process of a plugin's key store ends in order, with the service")
    func aPluginsKeyStoreEndsWithTheService() async throws {
        let log = directory["requests"]
        try directory.install(
            "certprov-plugin-tank",
            """
            #!/usr/bin/python3
            import json, os, signal, sys
            def end(*_):
                print("end", file=open("\(log)", "a"))
                os._exit(0)
            signal.signal(signal.SIGTERM, end)
            makes = {"scheme": "tank", "displayName": "Tank", "summary": "A tank.", "parameters": [], "makes": {"p256": ["sign"]}}
            answers = {"hello": {"version": 1, "id": "tank", "pluginVersion": "1", "shutdown": True, "keyStores": [makes]},
                       "key.list": {"keys": []}}
            for line in sys.stdin:
                message = json.loads(line)
                if "request" in message:
                    print(message["request"], file=open("\(log)", "a"))
                    answer = {"id": message["id"], "result": answers.get(message["request"], {})}
                    os.write(1, json.dumps(answer).encode() + b"\\n")
            end()
            """.utf8)
        let logon = try logon(try configure("PluginDirectory = \(directory.path)"))
        _ = try await logon.credentials()
        #expect(try await logon.manager.keyStores.store("tank:").list().isEmpty)
        let service = Task { try await logon.renewal.run() }
        service.cancel()
        try await service.value
        let requests = try String(contentsOfFile: log, encoding: .utf8).split(separator: "\n")
        // A slow one gets a signal instead.
        #expect(requests.filter { $0 != "shutdown" }.suffix(2) == ["key.list", "end"], "\(requests)")
    }

    /// The stored identity of each file is found again.
    @Test func anotherPathGivesTheSameCredentialsAnotherIdentity() async throws {
        let path = try configure()
        let logon = try logon(path)
        let credentials = try await logon.credentials()
        let first = credentials.current.identity.certificate
        _ = try configure(name: "another")
        #expect(try await logon.reload())
        #expect(credentials.current.identity.certificate.subject.contains("CN=another"))
        let text = try String(contentsOfFile: path, encoding: .utf8).replacing("another.p12", with: "client.p12")
        try FileManager.default.removeItem(atPath: directory["client.p12"])
        try directory.write(Array(text.utf8), to: "clienthub.properties")
        #expect(try await logon.reload())
        #expect(credentials.current.identity.certificate == first)
        #expect(try await logon.credentials() === credentials)
    }

    @Test("The renewal runs as a service and ends with a graceful shutdown")
    func theRenewalIsAService() async throws {
        let logon = try logon(try configure())
        let group = ServiceGroup(services: [logon.renewal], logger: Logger(label: "test"))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            tasks.addTask { try await group.run() }
            let credentials = try await logon.credentials()
            #expect(credentials.current.identity.certificate.subject.contains("CN=client"))
            await group.triggerGracefulShutdown()
            try await tasks.waitForAll()
        }
    }

    @Test func aKeyStoreOfTheServiceIsUsedByItsURI() async throws {
        let descriptor = ExampleKeyStore.descriptor(ProviderID("example"))
        let keyStores = try logon(try configure(), keyStores: [descriptor]).manager.keyStores
        let store = try keyStores.store("example:")
        let key = try await store.make(NewKey(.p256, label: "one"), NoUserInteraction()) { _ in }
        #expect(key.uri == "example:one" && store.holds(keyURI: "example:one"))
        #expect {
            _ = try logon(try configure(), keyStores: [SealedKeyStore.descriptor])
        } throws: { ($0 as? ProviderError)?.code == .configurationInvalid }
    }

    @Test("A mistake in the property file is reported with file and line")
    func aMistakeIsNamed() throws {
        let path = try configure("CertificateProvider.pkcs12.pasword-source = env:X")
        #expect {
            _ = try logon(path)
        } throws: { ($0 as? ProviderError)?.message.hasPrefix(path + ":4: ") == true }
        #expect {
            _ = try logon("/nowhere.properties")
        } throws: { ($0 as? ProviderError)?.code == .configurationMissing }
    }
}
