import CertificateProviding
import Foundation
import Testing

@testable import PluginProtocol

/// Requests about key stores, without a plugin's process.
@Suite(.timeLimit(.minutes(20))) struct KeyStoreServiceTests {
    private struct Nowhere: PeerSource {
        var livePeer: Peer? { nil }
        func peer() throws(CertificateProviderError) -> Peer {
            throw CertificateProviderError(.unavailable, "There is no other side.")
        }
        let timeout = Duration.seconds(20)
        let executor = BlockingExecutor.threads()
        func describing(_ error: CertificateProviderError) -> CertificateProviderError { error }
        var currentRequest: UInt64? { nil }
    }

    @Test(
        "The time that a key takes to sign is limited, whatever number it names",
        arguments: [
            ("1e30", 300), ("1.7e308", 300), ("301", 300), ("2", 2), ("0", 20), ("-1e30", 20), ("null", 20),
        ])
    func theTimeOfASignatureIsLimited(number: String, seconds: Int) throws {
        let publicKey = try SoftwareKey.generate(.p256, location: .file).publicKey
        let text = Data(publicKey.derRepresentation).base64EncodedString()
        let wire = try JSONDecoder().decode(
            WireKey.self, from: Data(#"{"id":"k","publicKey":"\#(text)","schemes":[],"timeout":\#(number)}"#.utf8))
        let key = try RemoteKey(wire, Nowhere(), knownTo: nil) { _, _ in nil }
        #expect(key.signatureTimeout == .seconds(seconds))
    }
}
