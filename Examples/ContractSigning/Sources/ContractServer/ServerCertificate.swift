import CertificateProviding
import Crypto
import Foundation
import NIOSSL
import X509

/// What the server shows to its clients, and asks of them.
enum ServerCertificate {
    /// With a certificate of the server's own CA.
    static func issued(by authority: CertificateAuthority, names: [String]) throws -> TLSConfiguration {
        let key = P256.Signing.PrivateKey()
        let certificate = try authority.issueServer(
            names: names.isEmpty ? ["localhost", "127.0.0.1"] : names, Certificate.PublicKey(key.publicKey),
            lifetime: 825 * 86_400, at: Date())
        let chain = try [certificate, authority.certificate].map {
            try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der)
        }
        return try configuration(
            chain, try NIOSSLPrivateKey(bytes: Array(key.derRepresentation), format: .der), clientsOf: authority)
    }

    /// With a certificate chain and a key in PEM.
    static func files(
        _ certificate: String, key: String, clientsOf authority: CertificateAuthority
    ) throws -> TLSConfiguration {
        let (name, keyName) = (
            "--certificate \(DisplayText.visible(certificate))", "--key \(DisplayText.visible(key))"
        )
        let (chainData, keyData) = (
            try ConfigurationError.data(ofFile: certificate, name), try ConfigurationError.data(ofFile: key, keyName)
        )
        guard let chain = try? NIOSSLCertificate.fromPEMBytes(Array(chainData)), !chain.isEmpty else {
            throw ConfigurationError("\(name) has no certificate in PEM. Write the server's there, and then its CA's.")
        }
        guard let privateKey = try? NIOSSLPrivateKey(bytes: Array(keyData), format: .pem) else {
            throw ConfigurationError(
                "\(keyName) has no private key in PEM without a passphrase. Write the server's there.")
        }
        let configuration = try configuration(chain, privateKey, clientsOf: authority)
        guard (try? NIOSSLContext(configuration: configuration)) != nil else {
            throw ConfigurationError(
                "\(keyName) is not the key of the first certificate in \(name). Set the two that belong together.")
        }
        return configuration
    }

    private static func configuration(
        _ chain: [NIOSSLCertificate], _ key: NIOSSLPrivateKey, clientsOf authority: CertificateAuthority
    ) throws -> TLSConfiguration {
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: chain.map { .certificate($0) }, privateKey: .privateKey(key))
        // A client may show a certificate, and the list tells it of whose.
        configuration.trustRoots = .certificates([
            try NIOSSLCertificate(bytes: authority.certificate.derRepresentation, format: .der)
        ])
        configuration.certificateVerification = .optionalVerification
        configuration.sendCANameList = true
        configuration.minimumTLSVersion = .tlsv12
        return configuration
    }
}
