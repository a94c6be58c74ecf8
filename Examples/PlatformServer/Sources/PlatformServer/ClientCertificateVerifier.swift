import Foundation
import Logging
import NIOSSL
import SwiftASN1
import X509

/// Verifies the certificate of a client during the handshake (RFC 5280, section 6).
///
/// swift-certificates does it, and not BoringSSL, to which NIOSSL gives no revocation lists. NIOSSL sends the same alert for
/// every refusal of this callback: `certificate_unknown` (RFC 8446, section 6.2). The reason is in the log.
struct ClientCertificateVerifier: Sendable {
    private static let maximumChainLength = 8

    let authorities: [Certificate]
    let revocations: Revocations
    let logger: Logger

    func verify(_ chain: [NIOSSLCertificate]) async throws -> NIOSSLVerificationResult {
        let chain = try chain.prefix(Self.maximumChainLength).map {
            try Certificate(derEncoded: try $0.toDERBytes())
        }
        guard let leaf = chain.first else { return .failed }
        var verifier = Verifier(rootCertificates: CertificateStore(authorities)) {
            RFC5280Policy()
            ClientPolicy(revocations: revocations)
        }
        switch await verifier.validate(leaf: leaf, intermediates: CertificateStore(chain.dropFirst())) {
        case .validCertificate: return .certificateVerified
        case .couldNotValidate(let failures):
            let reasons = failures.map { "\($0.policyFailureReason)" }
            logger.notice(
                "client certificate refused",
                metadata: [
                    "subject": "\(leaf.subject)",
                    "reason": "\(reasons.isEmpty ? "unknown issuer" : reasons.joined(separator: "; "))",
                ])
            return .failed
        }
    }

    /// The leaf may authenticate a TLS client, and no certificate is revoked.
    private struct ClientPolicy: VerifierPolicy {
        let verifyingCriticalExtensions: [ASN1ObjectIdentifier] = [.X509ExtensionID.extendedKeyUsage]
        let revocations: Revocations

        func chainMeetsPolicyRequirements(chain: UnverifiedCertificateChain) -> PolicyEvaluationResult {
            let now = Date()
            if chain.contains(where: { revocations.isRevoked($0, at: now) }) {
                return .failsToMeetPolicy(reason: "revoked, or the revocation list is out of date")
            }
            do {
                guard let usages = try chain.leaf.extensions.extendedKeyUsage else { return .meetsPolicy }
                return usages.contains(.clientAuth) || usages.contains(.any)
                    ? .meetsPolicy : .failsToMeetPolicy(reason: "not for TLS clients")
            } catch {
                return .failsToMeetPolicy(reason: "malformed extended key usage")
            }
        }
    }
}
