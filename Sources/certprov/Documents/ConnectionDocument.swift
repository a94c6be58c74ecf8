import Terminal
import CertificateProviding
import CertificateTLS
import FoundationEssentials
import NIOSSL

/// The result of `connect`.
struct ConnectionDocument: CommandDocument {
    static let kind = "Connection"

    let server: String
    let tlsVersion: String
    let applicationProtocol: Nullable<String>
    let certificateRequested: Bool
    let clientAuthentication: String
    let httpStatus: Nullable<Int>
    let identity: IdentityDocument
    let serverCertificate: ServerCertificate

    struct ServerCertificate: Encodable {
        let subject: String
        let issuer: String
        let serialNumber: String
        let notBefore: String
        let notAfter: String
        let sha256Fingerprint: String
        /// Of the public key, as the parameter `pin` takes it.
        let pin: String
        let subjectAlternativeNames: [String]
        let key: Key
    }

    struct Key: Encodable {
        let algorithm: String
        let parameters: Nullable<String>
        let bits: Int
    }

    init?(_ server: ServerAddress, _ identity: Identity, _ report: ConnectionReport, now: Date) {
        guard let document = IdentityDocument(ListedIdentity(identity, isStored: true), now: now) else { return nil }
        self.server = server.description
        self.tlsVersion = report.tlsVersion.displayName
        self.applicationProtocol = Nullable(report.applicationProtocol)
        self.certificateRequested = report.clientAuthentication != .notRequested
        self.clientAuthentication = report.clientAuthentication.rawValue
        self.httpStatus = Nullable(report.httpStatus)
        self.identity = document
        let certificate = report.serverCertificate
        self.serverCertificate = ServerCertificate(
            subject: certificate.subject, issuer: certificate.issuer, serialNumber: certificate.serialNumberText,
            notBefore: certificate.notValidBefore.rfc3339, notAfter: certificate.notValidAfter.rfc3339,
            sha256Fingerprint: certificate.sha256Fingerprint.hexEncoded,
            pin: CertificatePin.publicKeyText(of: certificate),
            subjectAlternativeNames: certificate.subjectAlternativeNames.map(\.description),
            key: Key(
                algorithm: certificate.publicKey.algorithm.rawValue,
                parameters: Nullable(certificate.publicKey.namedCurve),
                bits: certificate.publicKey.bits))
    }
}

extension TLSVersion {
    /// The name of the version in the standards, such as `TLS 1.3`.
    var displayName: String {
        switch self {
        case .tlsv1: "TLS 1.0"
        case .tlsv11: "TLS 1.1"
        case .tlsv12: "TLS 1.2"
        case .tlsv13: "TLS 1.3"
        }
    }
}
