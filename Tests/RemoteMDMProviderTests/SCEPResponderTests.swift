import CertificateProviding
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// The tests' SCEP server serves a client that is not ours, too: `scepclient`.
@Suite(.timeLimit(.minutes(20))) struct SCEPResponderTests {
    private static let threads = BlockingExecutor.threads(maximum: 2)

    private func enrol(with responder: SCEPResponder, in folder: TemporaryDirectory) async throws {
        let server = try await SCEPHTTPServer(responder)
        try folder.write(responder.authority.certificate.pemRepresentation.utf8, to: "ca.pem")
        try await Self.threads.run { () throws(ProviderError) in
            do {
                try Subprocess.run(
                    [
                        "scepclient", "-server-url", server.url, "-private-key", "client.key", "-certificate",
                        "client.pem", "-cn", "device", "-organization", "Example", "-challenge",
                        SCEPServer.challenge,
                    ], in: folder.path)
            } catch { throw ProviderError(.internal, "\(error)") }
        }
    }

    @Test func anotherClientEnrolsAndRenews() async throws {
        let responder = try SCEPResponder()
        let folder = try TemporaryDirectory()
        try await enrol(with: responder, in: folder)
        let first = try folder.read("client.pem")
        try Subprocess.openssl("verify", "-CAfile", "ca.pem", "client.pem", in: folder.path)
        // With a certificate, it renews.
        try await enrol(with: responder, in: folder)
        try Subprocess.openssl("verify", "-CAfile", "ca.pem", "client.pem", in: folder.path)
        #expect(try folder.read("client.pem") != first)
        #expect(responder.received.map(\.type) == ["19", "17"])
        let signer = try #require(responder.received.last?.certificate)
        #expect(try X509Certificate(derRepresentation: signer).pemRepresentation.utf8.elementsEqual(first))
    }

    @Test("The independent client understands the test server's refusal")
    func anotherClientUnderstandsARefusal() async throws {
        let responder = try SCEPResponder(.init(failInfo: "2"))
        let failure = await #expect(throws: ProviderError.self) {
            try await enrol(with: responder, in: try TemporaryDirectory())
        }
        #expect(failure?.message.contains("badRequest") == true)
    }
}
