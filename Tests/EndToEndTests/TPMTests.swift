import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// The command with keys in a software TPM, by the plugin that is installed with it.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMTests {
    private let sandbox: Sandbox
    private let tpm: SoftwareTPM

    init() throws { (sandbox, tpm) = (try Sandbox(), try SoftwareTPM()) }

    private func settings(_ tcti: String? = nil) throws -> String { try sandbox.installTPMPlugin(tcti ?? tpm.tcti) }

    /// Writes a property file for an enrolment with `key = tpm:`.
    private func configure(_ provider: String, _ lines: [String]) throws -> [String] {
        let lines = lines + ["key = tpm:"]
        let text =
            try settings() + "CertificateProvider = \(provider)\n"
            + lines.map { "CertificateProvider.\(provider).\($0)\n" }.joined()
        return ["--config", try sandbox.write(text, to: "client.properties")]
    }

    private func records() throws -> [String] {
        try FileManager.default.subpathsOfDirectory(atPath: sandbox.store).filter {
            $0.contains("/tpm/") && $0.contains("key-")
        }
    }

    @Test func atAnESTServer() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        try life(try sandbox.configure(server, settings() + "CertificateProvider.mdm.key = tpm:"))
        // The server knows the client by the key in the TPM.
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
    }

    @Test("After the TPM was cleared, each command says that the key is gone, and fetch --force obtains a new identity")
    func aClearedTPM() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try sandbox.configure(server, settings() + "CertificateProvider.mdm.key = tpm:")
        try sandbox.certprov(["fetch"] + configuration).expect()
        try sandbox.certprov(["check"] + configuration).expect()
        try tpm.run("tpm2_clear", "-c", "p")
        for command in ["list", "check", "fetch", "renew"] {
            let output = try sandbox.certprov([command] + configuration)
            let text = output.stdout + output.stderr
            #expect(output.status == 66 && text.contains("is gone") && text.contains("fetch --force"), "\(output)")
        }
        try sandbox.certprov(["fetch", "--force"] + configuration).expect()
        #expect(try server.requests().last?["operation"] as? String == "simpleenroll")
        try sandbox.certprov(["check"] + configuration).expect()
        #expect(try records().count == 1)
        #expect(try tpm.leftovers().isEmpty)
    }

    @Test func atASCEPServer() throws {
        let server = try SCEPServer()
        try sandbox.write(SCEPServer.challenge, to: "challenge")
        let lines = [
            "protocol = scep", "url = \(server.url)", "challenge-source = file:\(sandbox.path)/challenge",
            "ca-fingerprint = \(server.authority.sha256Fingerprint.hexEncoded)", "subject = CN=host,O=Example",
        ]
        try life(try configure("mdm", lines + ["key-type = rsa2048"]))
        // Before the TPM is asked.
        tpm.kill()
        try sandbox.certprov(["fetch"] + configure("mdm", lines + ["key-type = p256"])).expect(65, stderr: "key-type")
        #expect(try records().isEmpty)
    }

    @Test(.enabled(if: Pebble.isInstalled, "pebble is not installed")) func atAnACMEServer() async throws {
        let (server, port) = (try await Pebble.start(), try ReservedPort())
        try life(
            try configure(
                "acme",
                [
                    "directory = \(server.directoryURL)", "trust-anchors = \(server.serverCA)", "agree-terms = true",
                    "identifiers = dns:host.example", "http-listen = 127.0.0.1:\(port)", "usage = server",
                ]))
    }

    /// Enrols, renews and deletes an identity.
    private func life(_ configuration: [String]) throws {
        func location() throws -> String? {
            let listed = try sandbox.certprov(["list", "--json"] + configuration).expect()
            return try listed.document("IdentityList")["items"].array.first?["key"]["uri"].string
        }
        try sandbox.certprov(["check"] + configuration).expect()
        try sandbox.certprov(["fetch"] + configuration).expect(stderr: "")
        let first = try #require(try location())
        #expect(first.wholeMatch(of: /tpm:[0-9a-f]{16}/) != nil)
        let exported = try sandbox.certprov(
            ["fetch", "--out", sandbox.path + "/out", "--export-key"] + configuration)
        #expect(exported.status != 0 && exported.stderr.contains("cannot leave"), "\(exported)")

        // The TPM goes and comes back.
        tpm.kill()
        try sandbox.certprov(["fetch", "--force"] + configuration).expect(69, stderr: "does not answer")
        #expect(try sandbox.certprov(["check"] + configuration).status != 0)
        try tpm.start()
        try sandbox.certprov(["fetch", "--force"] + configuration).expect()
        #expect(try location() != first)
        #expect(try tpm.leftovers().isEmpty)

        try sandbox.certprov(["delete", "--yes"] + configuration).expect()
        #expect(try records().isEmpty)
    }

    // MARK: - Kills

    /// The resource manager takes what a connection leaves that ends.
    private func manage(_ manager: ResourceManager, by tcti: String) throws -> String {
        try settings(tcti) + "KeyStore.tpm.environment = \(manager.bus.name)\n"
    }

    @Test(
        "A kill at each command of a key's making leaves no key without a name, and nothing in the TPM",
        arguments: TestLength.rounds(1, full: 2, soak: 2) == 1 ? [0] : [0, 1])
    func aKillAtEachCommand(first: Int) throws {
        let manager = try ResourceManager(tpm)
        func keys(_ arguments: String..., by tcti: String) throws -> Output {
            let configuration = try sandbox.write(manage(manager, by: tcti), to: "tpm.properties")
            return try sandbox.certprov(
                ["keys"] + arguments + ["--config", configuration], with: [manager.bus.name: manager.bus.value])
        }
        let text = try sandbox.write("a text", to: "text")
        var (step, proxies) = (0, [TPMProxy]())
        repeat {
            step += 1
            // A plugin may outlive its command by a moment.
            let proxy = try TPMProxy(manager.tcti, variables: [manager.bus.name: manager.bus.value])
            proxies.append(proxy)
            try proxy.kill((step + first).isMultiple(of: 2) ? .plugin : .command, at: step)
            let made = try keys("create", "pair-\(step)", "--type", "p256", "--key", "tpm:", by: proxy.tcti)
            #expect((made.status == 0) == !proxy.hasKilled, "\(step): \(made)")
        } while proxies[step - 1].hasKilled
        // At least the storage key twice, a key made, loaded and used, and three flushed.
        #expect(step > 8)
        let listed = try keys("list", "--json", by: manager.tcti).document("NamedKeyList")["items"].array
        let names = listed.compactMap { $0["name"].string }
        #expect(names == ["pair-\(step)"])
        try keys("sign", "pair-\(step)", text, by: manager.tcti).expect()
        #expect(try records().count == names.count)
        manager.kill()
        #expect(try tpm.leftovers().isEmpty)
    }

    @Test func killedAtRandomMomentsARenewalLeavesOneKey() async throws {
        let (server, manager) = (try await ESTServer.start("--auth", "basic"), try ResourceManager(tpm))
        let variables = [manager.bus.name: manager.bus.value]
        let configuration = try sandbox.configure(
            server, manage(manager, by: manager.tcti) + "CertificateProvider.mdm.key = tpm:")
        let renewal = ["fetch", "--force", "--json"] + configuration
        let start = ContinuousClock.now
        try sandbox.certprov(renewal, with: variables).require()
        var kills = KillMoments(TestLength.rounds(8, full: 12, soak: 200), within: ContinuousClock.now - start)
        while kills.areLeft {
            _ = kills.kill(try sandbox.start([BuiltCommand.path] + renewal, with: variables))
            try sandbox.certprov(["list", "--json"] + configuration, with: variables).expect()
        }
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        for _ in 0..<2 { try sandbox.certprov(renewal, with: variables).expect() }
        #expect(try records().count == 1)
        manager.kill()
        #expect(try tpm.leftovers().isEmpty)
    }

    // MARK: - Other uses

    @Test("Files.key-form = tss2 writes a key file that OpenSSL's provider tpm2 signs with")
    func aKeyFileForOtherPrograms() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let files = """
            CertificateProvider.mdm.key = tpm:
            Files.directory = \(sandbox.path)/files
            Files.key = true
            Files.key-form = tss2
            """
        let configuration = try sandbox.configure(server, try settings() + files)
        try sandbox.certprov(["fetch"] + configuration).expect(stderr: "")
        let directory = sandbox.path + "/files/current"
        #expect(mode(directory + "/key.pem") == 0o600)
        try tpm.run(
            "sh", "-ec",
            """
            openssl pkeyutl -provider tpm2 -provider default -sign -rawin -digest sha256 -inkey key.pem -in chain.pem \
                -out ../signature
            openssl x509 -in certificate.pem -noout -pubkey >../public.pem
            openssl dgst -sha256 -verify ../public.pem -signature ../signature chain.pem
            """, in: directory)
        // The provider pem reads them.
        let pem = try sandbox.write(
            settings() + """
                CertificateProvider = pem
                CertificateProvider.pem.certificate = \(directory)/chain.pem
                CertificateProvider.pem.key = tpm:\(directory)/key.pem

                """, to: "pem.properties")
        try sandbox.certprov("fetch", "--config", pem).expect(stderr: "")
        let plain = try sandbox.certprov(
            "fetch", "--provider", "pem", "--set", "certificate=\(directory)/chain.pem", "--set",
            "key=\(directory)/key.pem")
        #expect(plain.status != 0 && plain.stderr.contains("tpm:\(directory)/key.pem"), "\(plain)")
        let whole = try sandbox.configure(
            server, settings() + files.replacing("Files.key-form = tss2", with: "").replacing("/files", with: "/whole"))
        let kept = try sandbox.certprov(["fetch"] + whole)
        #expect(kept.status != 0 && kept.stderr.contains("Files.key-form = tss2"), "\(kept)")
        // A key that is in no TPM has no such form.
        let store = try sandbox.configure(
            server,
            settings() + files.replacing("key = tpm:", with: "key = store:").replacing("/files", with: "/plain"))
        let refused = try sandbox.certprov(["fetch", "--force"] + store)
        #expect(refused.status != 0 && refused.stderr.contains("Files.key-form"), "\(refused)")
    }

    @Test func aKeyWithoutAProvider() throws {
        let configuration = ["--config", try sandbox.write(settings(), to: "plain.properties")]
        let request = sandbox.path + "/client.csr"
        let made = try sandbox.certprov(
            ["keygen", "--key", "tpm:web", "--subject", "CN=web", "--out", request] + configuration)
        #expect(made.status == 0 && made.stdout.hasPrefix("tpm:web-"), "\(made)")
        try sandbox.run(["openssl", "req", "-verify", "-noout", "-in", request]).expect()
        #expect(try tpm.leftovers().isEmpty)
    }

    @Test(
        "Without the right to open the TPM, check names the group and the command",
        .enabled(if: geteuid() == 0, "another user takes root"))
    func withoutRights() throws {
        let device = sandbox.path + "/tpmrm0"
        try sandbox.run(["mknod", "-m", "660", device, "c", "1", "3"]).require()
        try sandbox.run(["chgrp", "tss", device]).require()
        let configuration = try sandbox.write(
            settings("device:" + device) + """
                CertificateProvider = mdm
                CertificateProvider.mdm.protocol = est
                CertificateProvider.mdm.url = https://localhost:1
                CertificateProvider.mdm.subject = CN=host
                CertificateProvider.mdm.key = tpm:

                """, to: "client.properties", mode: 0o644)
        try sandbox.run(["chmod", "755", sandbox.path, sandbox.path + "/plugins"]).require()
        try sandbox.run(["chmod", "755", sandbox.path + "/plugins/certprov-plugin-tpm"]).require()
        for name in ["state", "config", "home"] {
            try sandbox.run(["chown", "nobody", sandbox.path + "/" + name]).require()
        }
        let checked = try sandbox.run([
            "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", BuiltCommand.path, "check", "--config",
            configuration,
        ])
        #expect(checked.status != 0 && checked.stdout.contains("usermod --append --groups tss nobody"), "\(checked)")
    }
}
