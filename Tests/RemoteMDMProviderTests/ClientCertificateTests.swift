import CertificateProviding
import Enrolment
import Foundation
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// The certificate that a server knows a host by before it has issued one itself.
@Suite(.timeLimit(.minutes(20))) struct ClientCertificateTests {
    @Test("The client certificate authenticates the first enrolment, not the renewal")
    func isForTheFirstEnrolment() async throws {
        let server = try ESTResponder(.certificate)
        let storage = InMemoryStorage()
        let settings = Self.settings(server)
        let first = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        let second = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        #expect(first.certificate != second.certificate)
        let requests = server.requests.filter { $0.operation?.enrols == true }
        let subjects = requests.map { $0.clientCertificate ?? "" }
        #expect(subjects.count == 2 && subjects[0].contains("Device") && !subjects[1].contains("Device"))
    }

    @Test("A server that requires both client certificate and password rejects either one alone")
    func aServerMayWantAPasswordToo() async throws {
        let server = try ESTResponder([.certificate, .basic])
        let password = ["username": ESTServer.user, "password-source": "env:PASSWORD"]
        let provider = try server.provider(Self.settings(server).merging(password) { $1 })
        _ = try await provider.getCertificate(NoUserInteraction())
        let withoutPassword = try server.provider(Self.settings(server))
        #expect(await code { _ = try await withoutPassword.getCertificate(NoUserInteraction()) } == .rejected)
        let alone = try server.provider(["username": ESTServer.user])
        #expect(await code { _ = try await alone.getCertificate(NoUserInteraction()) } == .rejected)
    }

    /// As openssl writes it, in all its forms.
    @Test(arguments: [["pkey"], ["ec"], ["pkcs8", "-topk8", "-nocrypt"]])
    func theKeyMayBeInAnyForm(form: [String]) async throws {
        let server = try ESTResponder(.certificate)
        let key = server.directory["form.key"]
        try Subprocess.run(["openssl"] + form + ["-in", server.directory["manufacturer.key"], "-out", key])
        _ = try await server.provider(Self.settings(server, key: key)).getCertificate(NoUserInteraction())
    }

    @Test func theKeyMayBeInTheSameFile() async throws {
        let server = try ESTResponder(.certificate)
        let both = server.directory["both.pem"]
        let parts = try ["manufacturer.pem", "manufacturer.key"].map {
            try String(contentsOfFile: server.directory[$0], encoding: .utf8)
        }
        try server.directory.write(Array(parts.joined().dropLast().utf8), to: "both.pem")
        chmod(both, 0o600)
        let settings = Self.settings(server, key: both).merging(["client-certificate": both]) { $1 }
        _ = try await server.provider(settings).getCertificate(NoUserInteraction())
    }

    @Test("An unusable client certificate or key fails before any request is sent")
    func whatCannotBeUsedIsRefusedBeforeAnythingIsSent() async throws {
        let server = try ESTResponder(.certificate)
        let (encrypted, other) = ("encrypted.key", "other.key")
        let folder = server.directory.path
        try Subprocess.openssl(
            "pkey", "-in", "manufacturer.key", "-aes256", "-passout", "pass:x", "-out", encrypted, in: folder)
        try Subprocess.openssl(
            "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", other, in: folder)
        let expired = try CertifiedKey(
            "expired", key: .generate(.p256, location: .file), notAfter: Date(timeIntervalSinceNow: -60))
        try OpenSSLCommand.write(expired, "expired", to: server.directory)
        let (device, none) = ("manufacturer.pem", "nothing")
        let cases: [(String, String, ProviderError.Code, String)] = [
            (device, encrypted, .configurationInvalid, "is encrypted"), (device, other, .keyMismatch, ""),
            (device, device, .configurationInvalid, "no private key in PEM"), (device, none, .fileNotFound, ""),
            (none, other, .fileNotFound, ""), ("expired.pem", "expired.key", .configurationInvalid, "Nothing was sent"),
        ]
        for (certificate, key, code, text) in cases {
            var settings = Self.settings(server, key: server.directory[key])
            settings["client-certificate"] = server.directory[certificate]
            let provider = try server.provider(settings)
            let error = await #expect(throws: ProviderError.self) {
                _ = try await provider.getCertificate(NoUserInteraction())
            }
            #expect(error?.code == code, "\(key): \(String(describing: error))")
            // Of a file that is not there the source itself says enough.
            let isNamed = error?.message.contains("The parameter 'client-") == true
            #expect(isNamed || key == none, "\(key): \(String(describing: error))")
            #expect(text.isEmpty || error?.message.contains(text) == true, "\(key): \(String(describing: error))")
        }
        #expect(server.requests.isEmpty)
    }

    /// A certificate of an authority that the server does not know. In TLS 1.3 our request is on its way by then, and the
    /// server's alert may be lost.
    @Test("The error names the client certificate that the server refuses")
    func whichCertificateIsRefusedIsSaid() async throws {
        let server = try await ESTServer.start("--auth", "certificate", "--tls", "1.2")
        let stranger = try CertifiedKey(
            "stranger", key: .generate(.p256, location: .file), isAuthority: false, usage: nil)
        try OpenSSLCommand.write(stranger, "stranger", to: server.directory)
        var settings = Self.settings(server, key: server.directory["stranger.key"])
        settings["client-certificate"] = server.directory["stranger.pem"]
        let provider = try server.provider(settings)
        let error = await #expect(throws: ProviderError.self) {
            _ = try await provider.getCertificate(NoUserInteraction())
        }
        #expect(
            error?.code == .rejected && error?.message.contains("'CN=stranger'") == true, "\(String(describing: error))"
        )
    }

    @Test(
        "Invalid client certificate parameters are refused",
        arguments: [
            ["client-key-source": "env:KEY"], ["client-certificate": "c.pem"],
            ["client-certificate": "pkcs11:token=x", "client-key-source": "env:KEY"],
            ["client-certificate": "pkcs11:token=x?pin-value=1234"],
            ["client-certificate": "c.pem", "client-key-source": "prompt"],
            [
                "client-certificate": "c.pem", "client-key-source": "env:KEY", "protocol": "scep",
                "url": "https://localhost/", "trust-anchors": "",
            ],
            [
                "client-certificate": "c.pem", "client-key-source": "env:KEY", "protocol": "scep",
                "url": "http://localhost/",
                "trust-anchors": "",
            ],
        ])
    func whatDoesNotFitIsRefused(settings: [String: String]) throws {
        var parameters = [
            "protocol": "est", "url": "https://localhost", "trust-anchors": "ca.pem", "subject": "CN=client",
        ]
        parameters.merge(settings) { $1 }
        #expect {
            _ = try RemoteMDMProvider.make(
                environment: .testing(storage: InMemoryStorage()),
                parameters: ProviderParameters(parameters.filter { !$0.value.isEmpty }.mapValues { .init($0) }))
        } throws: { error in
            let error = error as? ProviderError
            return error?.code == .configurationInvalid && error?.message.contains("client-") == true
        }
    }

    private static func settings(_ server: some ESTPeer, key: String? = nil) -> [String: String] {
        let key = key ?? server.directory["manufacturer.key"]
        chmod(key, 0o600)
        return [
            "client-certificate": server.directory["manufacturer.pem"], "client-key-source": "file:\(key)",
            "username": "",
            "password-source": "",
        ]
    }
}
