import CertificateProviding
import Contracts
import Foundation
import Signing
import Testing

@testable import ContractServer

/// The server's verdict on signatures as hosts make them.
@Suite(.timeLimit(.minutes(30))) struct PDFSignatureTests {
    private static let noServer: ContractSigner.CodeSource = { () async throws(ProviderError) in
        throw ProviderError(.unavailable, "There is no server.")
    }

    private static func requireAccepted(_ host: SigningHost, _ signer: Signer) async throws {
        let contract = try await host.add()
        let (signed, _) = try await ContractSigner(host.queue, signer, codes: noServer).sign(contract.id, for: 0) { _ in
            true
        } requestCode: { _ in
            ""
        }
        try await EvidenceCheck().check(try host.documents(of: signed), of: signed.version)
    }

    @Test(
        "the server accepts signatures by RSA and by each curve",
        arguments: ["rsa:2048", "rsa:3072", "ec:P-256", "ec:P-384", "ec:P-521"])
    func keys(kind: String) async throws {
        let host = try SigningHost()
        let options = kind.hasPrefix("ec:") ? ["ec", "-pkeyopt", "ec_paramgen_curve:" + kind.dropFirst(3)] : [kind]
        try host.run(
            ["openssl", "req", "-x509", "-newkey"] + options + [
                "-noenc", "-keyout", "alice.key", "-out", "alice.pem", "-days", "1", "-subj", "/CN=Alice", "-addext",
                "keyUsage=critical,digitalSignature",
            ])
        try await Self.requireAccepted(host, try await host.signer())
    }

    @Test("the server accepts signatures with a time stamp")
    func timeStamp() async throws {
        let host = try SigningHost()
        let stamps = try await StampServer(host)
        defer { withExtendedLifetime(stamps) {} }
        let identity = try await host.signer().identity
        try await Self.requireAccepted(host, try Signer(identity, timeStamps: stamps.server))
    }
}
