import Foundation
import Glibc
import TestSupport
import Testing

/// The command with keys in a software TPM, by the plugin that is installed with it.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct TPMTests {
    private let sandbox: Sandbox
    private let tpm: SoftwareTPM

    init() throws {
        (sandbox, tpm) = (try Sandbox(), try SoftwareTPM())
        let plugin = try sandbox.installPlugin("tpm", "")
        try Subprocess.run(["install", "-m", "700", BuiltCommand.program("certprov-plugin-tpm"), plugin])
    }

    private func settings(_ tcti: String? = nil) -> String {
        """
        PluginDirectory = \(sandbox.path)/plugins
        KeyStore.tpm.tcti = \(tcti ?? tpm.tcti)
        KeyStore.tpm.timeout = 120

        """
    }

    @Test func anIdentityIsEnrolledRenewedAndDeleted() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let configuration = try sandbox.configure(server, settings() + "CertificateProvider.mdm.key = tpm:")
        func location() throws -> String? {
            let listed = try sandbox.certprov(["list", "--json"] + configuration).expect()
            return try listed.document("IdentityList")["items"].array.first?["key"]["uri"].string
        }
        try sandbox.certprov(["check"] + configuration).expect()
        try sandbox.certprov(["fetch"] + configuration).expect(stderr: "")
        let first = try #require(try location())
        #expect(first.wholeMatch(of: /tpm:[0-9a-f]{16}/) != nil)
        // The server knows the client by the key in the TPM.
        try sandbox.certprov(["fetch", "--force"] + configuration).expect()
        #expect(try server.requests().last?["operation"] as? String == "simplereenroll")
        #expect(try location() != first)
        let exported = try sandbox.certprov(
            ["fetch", "--out", sandbox.path + "/out", "--export-key"] + configuration)
        #expect(exported.status != 0 && exported.stderr.contains("cannot leave"), "\(exported)")

        // The TPM goes and comes back.
        tpm.kill()
        try sandbox.certprov(["fetch", "--force"] + configuration).expect(69, stderr: "does not answer")
        #expect(try sandbox.certprov(["check"] + configuration).status != 0)
        try tpm.start()
        try sandbox.certprov(["fetch", "--force"] + configuration).expect()
        #expect(try tpm.leftovers().isEmpty)

        try sandbox.certprov(["delete", "--yes"] + configuration).expect()
        let records = try FileManager.default.subpathsOfDirectory(atPath: sandbox.store)
        #expect(!records.contains { $0.contains("/tpm/") && $0.contains("key-") }, "\(records)")
    }

    @Test("Files.key-form = tss2 writes a key file that OpenSSL's provider tpm2 signs with")
    func aKeyFileForOtherPrograms() async throws {
        let server = try await ESTServer.start("--auth", "basic")
        let files = """
            CertificateProvider.mdm.key = tpm:
            Files.directory = \(sandbox.path)/files
            Files.key = true
            Files.key-form = tss2
            """
        let configuration = try sandbox.configure(server, settings() + files)
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

    @Test func keysWithoutAProvider() throws {
        let configuration = ["--config", try sandbox.write(settings(), to: "plain.properties")]
        let request = sandbox.path + "/client.csr"
        let made = try sandbox.certprov(
            ["keygen", "--key", "tpm:web", "--subject", "CN=web", "--out", request] + configuration)
        #expect(made.status == 0 && made.stdout.hasPrefix("tpm:web-"), "\(made)")
        try sandbox.run(["openssl", "req", "-verify", "-noout", "-in", request]).expect()

        try sandbox.certprov(["keys", "create", "pair", "--type", "p256", "--key", "tpm:"] + configuration).expect()
        let text = try sandbox.write("a text\n", to: "text")
        let signature = try sandbox.certprov(["keys", "sign", "pair", text] + configuration).expect().stdout
        let key = try sandbox.certprov(["keys", "export", "pair", "--pem"] + configuration).expect().stdout
        try sandbox.write(key, to: "pair.pem")
        let bytes = try #require(Data(base64Encoded: signature.trimmingCharacters(in: .newlines)))
        try sandbox.write(bytes, to: "signature")
        try sandbox.run([
            "openssl", "dgst", "-sha256", "-verify", sandbox.path + "/pair.pem", "-signature",
            sandbox.path + "/signature", text,
        ]).expect()
        try sandbox.certprov(["keys", "delete", "pair"] + configuration).expect(stdout: "true")
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
