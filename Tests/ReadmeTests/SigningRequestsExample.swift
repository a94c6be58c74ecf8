import CertificateProviding
import SigningRequests

/// Has the person on this host sign a challenge.
///
/// - Returns: The signature, which has been verified, and the certificate, which leads to an anchor.
func signature(
    of challenge: [UInt8], for service: String, key: SecretBytes, anchors: [X509Certificate]
) async throws -> (signature: [UInt8], certificate: X509Certificate) {
    let request = SigningRequest(.signChallenge, challenge, serviceName: service, clientID: 1)
    let reply = try await RequestSocket.send(try request.url(key: key).text, within: .seconds(150))
    let signed = try await SigningReply(reply, to: .signChallenge, of: challenge, anchors: anchors)
    return (signed.data, signed.certificate)
}
