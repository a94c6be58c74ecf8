import CertificateProviding
import Foundation
import NIOCore
import NIOSSL
import TestSupport
import Testing

@testable import CertificateTLS

@Suite(.timeLimit(.minutes(20))) struct TrustAnchorsTests {
    private func withFile<T>(_ contents: Data, _ body: (String) throws -> T) throws -> T {
        let url = FileManager.default.temporaryDirectory.appending(path: "certprov-anchors-\(UUID().uuidString)")
        try contents.write(to: url)
        defer { try? FileManager.default.removeItem(at: url) }
        return try body(url.path)
    }

    private func expect(
        _ code: ProviderError.Code, _ fragment: String, from anchors: TrustAnchors
    ) throws {
        #expect { try anchors.load() } throws: { error in
            guard let error = error as? ProviderError else { return false }
            return error.code == code && error.message.contains(fragment)
        }
    }

    @Test func readsAPEMFile() throws {
        let authority = try authority.get()
        let text = "Our root:\n" + authority.root.pemRepresentation + authority.intermediate.pemRepresentation
        try withFile(Data(text.utf8)) { path in
            guard case .certificates(let certificates) = try TrustAnchors.pemFile(path).load() else {
                Issue.record("not certificates")
                return
            }
            let expected = [authority.root, authority.intermediate].map(\.derRepresentation)
            #expect(try certificates.map { try $0.toDERBytes() } == expected)
        }
    }

    @Test("Trust anchors that are empty, missing or damaged are refused")
    func refusesWhatWouldTrustNobody() throws {
        try expect(.configurationInvalid, "is empty", from: .certificates([]))
        try expect(.fileNotFound, "cannot be used", from: .pemFile("/nonexistent/anchors.pem"))
        try expect(.configurationInvalid, "not a regular file", from: .pemFile("/dev/zero"))
        let root = try authority.get().root
        let files: [(Data, ProviderError.Code, String)] = [
            (Data(), .configurationInvalid, "convert DER"),
            (Data(root.derRepresentation), .malformedData, "openssl x509 -inform DER"),
            (Data(pem("PRIVATE KEY").utf8), .configurationInvalid, "holds no PEM certificate"),
            (Data(pem("CERTIFICATE").utf8), .malformedData, "damaged"),
            (Data(root.pemRepresentation.dropLast(40).utf8), .malformedData, "is cut off"),
        ]
        for (contents, code, reason) in files {
            try withFile(contents) { try expect(code, reason, from: .pemFile($0)) }
        }
    }

    private func pem(_ type: String) -> String { "-----BEGIN \(type)-----\nAAAA\n-----END \(type)-----\n" }

    /// BoringSSL does not end a chain in a certificate that another authority has issued.
    @Test func refusesAnIntermediateWithoutItsRoot() throws {
        let authority = try authority.get()
        let reason = "every chain must end in one; add the certificate of 'CN=Test Root"
        try expect(.configurationInvalid, reason, from: .certificates([authority.intermediate]))
        try withFile(Data(authority.intermediate.pemRepresentation.utf8)) {
            try expect(.configurationInvalid, reason, from: .pemFile($0))
        }
        _ = try TrustAnchors.certificates([authority.intermediate, authority.root]).load()
    }

    @Test("A TRUSTED CERTIFICATE of OpenSSL is refused as a trust anchor")
    func refusesOpenSSLsOwnForm() throws {
        let root = try authority.get().root.pemRepresentation
        let trusted = root.replacing(" CERTIFICATE-----", with: " TRUSTED CERTIFICATE-----")
        for text in [trusted, root + trusted] {
            try withFile(Data(text.utf8)) {
                try expect(.configurationInvalid, "convert each with: openssl x509", from: .pemFile($0))
            }
        }
    }

    /// TLS has 64 KiB for them, and a context compares each with each.
    @Test("A server with very many trust anchors works, and does not send their names")
    func veryManyTrustAnchors() async throws {
        let authority = try authority.get()
        let many = try (0..<1500).map { try TestAuthority.certificate(subject: "CA \($0)", issuer: "CA \($0)") }
        let (few, all) = (many.prefix(3) + [authority.root], many + [authority.root])
        #expect(try TrustAnchors.named(Array(few)).count == 4 && TrustAnchors.named(all).isEmpty)
        #expect(
            try TrustAnchors.named(Array(many.prefix(64))).count == 64
                && TrustAnchors.named(Array(many.prefix(65))).isEmpty)
        let credentials = try TLSCredentials(authority.issue("server"))
        let client = try TLSCredentials(authority.issue("client"))
        let tls = try await RotatingTLS(
            RotatingCredentials(credentials), trusting: PeerTrust(anchors: .certificates(all)))
        let server = try tls.server()
        #expect(!server.makeConfiguration().sendCANameList)
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandler(server.makeHandler(for: channel))
            } body: { port in
                var probe = try makeProbe(port: port)
                probe.credentials = client
                probe.settlingTime = .milliseconds(50)
                _ = try await probe.run(on: group)
            }
        }
    }
}
