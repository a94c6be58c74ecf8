import CertificateProviding
import Enrolment
import Foundation
import Glibc
import PKCS11TokenProvider
import RemoteMDMProvider
import TestSupport
import Testing

/// The private key of an enrolment into a token is never in the process that enrols. The token is in another one,
/// behind p11-kit's server, and tells the test what it has made.
@Suite(.timeLimit(.minutes(20))) struct SecretKeyTests {
    private static let library = "/usr/lib/softhsm/libsofthsm2.so"

    @Test func theKeyIsNotInThisProcess() async throws {
        let folder = try TemporaryDirectory()
        let tokens = try startTokens(in: folder)
        let server = try await ESTServer.start("--auth", "basic")
        for (type, size) in [("p256", 32), ("rsa2048", 256)] {
            let identity = try await provider(server, type).getCertificate(NoUserInteraction())
            try server.verify(identity)
            for _ in 0..<3 { try await identity.verifyPossession() }

            let inverted = try folder.read("key")
            // The token leaves out the zeros that a number begins with, which one in 256 has.
            #expect((size - 4...size).contains(inverted.count))
            #expect(try ProcessMemory.places(of: inverted) == 0, "\(type)")
            // One that is there would be found.
            let copy = inverted.map { ~$0 }
            #expect(try ProcessMemory.places(of: inverted) > 0)
            withExtendedLifetime(copy) {}
        }
        withExtendedLifetime(tokens) {}
    }

    private func startTokens(in folder: TemporaryDirectory) throws -> Subprocess {
        mkdir(folder["tokens"], 0o700)
        let configuration = try folder.write("directories.tokendir = \(folder["tokens"])\n".utf8, to: "c.conf")
        let variable = "SOFTHSM2_CONF=" + configuration
        try Subprocess.run([
            variable, "softhsm2-util", "--init-token", "--free", "--label", "apart", "--pin", EmptyTokens.pin,
            "--so-pin", EmptyTokens.soPIN,
        ])
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "extracting-module.c").path
        let module = folder["extracting.so"]
        try Subprocess.run(["cc", "-shared", "-fPIC", "-I/usr/include/p11-kit-1", "-o", module, source, "-ldl"])
        let socket = folder["socket"]
        let server = try Subprocess([
            variable, "EXTRACTED_MODULE=" + Self.library, "EXTRACTED_KEY=" + folder["key"], "p11-kit", "server", "-f",
            "-n", socket, "-p", module, "pkcs11:token=apart",
        ])
        _ = try #require(server.readLine())
        setenv("P11_KIT_SERVER_ADDRESS", "unix:path=" + socket, 1)
        return server
    }

    private func provider(_ server: ESTServer, _ type: String) throws -> EnrollingProvider {
        let variables = ["PASSWORD": ESTServer.password, "PIN": EmptyTokens.pin]
        let environment = ProviderEnvironment.testing(
            variables: variables, keyStores: [(TokenKeyStore.descriptor, InMemoryStorage())])
        let parameters = [
            "protocol": "est", "url": "https://localhost:\(server.port)", "trust-anchors": server.directory["ca.pem"],
            "username": ESTServer.user, "password-source": "env:PASSWORD", "subject": "CN=\(type)", "key-type": type,
            "key": "pkcs11:token=apart?module-path=\(try P11KitClient.path())", "key-pin-source": "env:PIN",
        ]
        let provider = try RemoteMDMProvider.make(
            environment: environment, parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }
}
