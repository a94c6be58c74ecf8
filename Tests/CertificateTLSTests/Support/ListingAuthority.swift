import CertificateProviding
import Foundation
import TestSupport

/// A root, an issuing CA and leaves, made by `openssl ca`, which makes their revocation lists.
final class ListingAuthority: Sendable {
    let directory: TemporaryDirectory
    let root: X509Certificate
    let issuing: X509Certificate

    init() throws {
        let directory = try TemporaryDirectory()
        try directory.write(
            """
            [ca]
            default_ca = ca
            [ca]
            database = $ENV::CA.index
            new_certs_dir = .
            certificate = $ENV::CA.pem
            private_key = $ENV::CA.key
            serial = $ENV::CA.serial
            crlnumber = $ENV::CA.number
            default_md = sha256
            default_days = 30
            policy = any
            unique_subject = no
            [any]
            commonName = supplied
            [req]
            distinguished_name = dn
            [dn]
            [authority]
            basicConstraints = critical, CA:true
            keyUsage = critical, keyCertSign, cRLSign
            subjectKeyIdentifier = hash
            [unable]
            basicConstraints = critical, CA:true
            keyUsage = critical, keyCertSign
            [leaf]
            basicConstraints = critical, CA:false
            keyUsage = critical, digitalSignature
            extendedKeyUsage = clientAuth, serverAuth
            subjectAltName = DNS:localhost
            [leaf-with-point]
            subjectAltName = DNS:localhost
            crlDistributionPoints = point
            [leaf-with-two-points]
            crlDistributionPoints = other, point
            [leaf-with-reasons]
            crlDistributionPoints = some
            [leaf-with-issuer]
            crlDistributionPoints = foreign
            [point]
            fullname = URI:http://ca.example.test/1.0/crl
            [other]
            fullname = URI:http://ca.example.test/other
            [some]
            fullname = URI:http://ca.example.test/1.0/crl
            reasons = keyCompromise
            [foreign]
            fullname = URI:http://ca.example.test/1.0/crl
            CRLissuer = dirName:issuer
            [issuer]
            CN = elsewhere
            [users-of-point]
            issuingDistributionPoint = critical, @onlyuser-of-point
            [onlyuser-of-point]
            fullname = URI:http://ca.example.test/1.0/crl
            onlyuser = TRUE
            [all-of-point]
            issuingDistributionPoint = critical, @point
            [authorities-of-point]
            issuingDistributionPoint = critical, @onlyCA-of-point
            [onlyCA-of-point]
            fullname = URI:http://ca.example.test/1.0/crl
            onlyCA = TRUE
            [reasons-of-point]
            issuingDistributionPoint = critical, @some-of-point
            [some-of-point]
            fullname = URI:http://ca.example.test/1.0/crl
            onlysomereasons = keyCompromise
            [indirect-of-point]
            issuingDistributionPoint = critical, @indirectly-of-point
            [indirectly-of-point]
            fullname = URI:http://ca.example.test/1.0/crl
            indirectCRL = TRUE
            [users]
            issuingDistributionPoint = critical, @onlyuser
            [onlyuser]
            onlyuser = TRUE
            [authorities]
            issuingDistributionPoint = critical, @onlyCA
            [onlyCA]
            onlyCA = TRUE
            [reasons]
            issuingDistributionPoint = critical, @onlysome
            [onlysome]
            onlysomereasons = keyCompromise
            [indirect]
            issuingDistributionPoint = critical, @indirectly
            [indirectly]
            indirectCRL = TRUE
            [delta]
            deltaCRL = critical, ASN1:INTEGER:1
            [unknown]
            1.2.3.4 = critical, ASN1:NULL
            """.utf8, to: "ca.cnf")
        func run(_ ca: String, _ arguments: String...) throws {
            try Subprocess.run(
                ["env", "CA=\(ca)", "openssl"] + arguments, in: directory.path)
        }
        for ca in ["root", "issuing", "stranger"] {
            try directory.write([], to: "\(ca).index")
            try directory.write("01\n".utf8, to: "\(ca).number")
            try directory.write("1000\n".utf8, to: "\(ca).serial")
            try run(
                ca, "req", "-new", "-config", "ca.cnf", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                "-noenc",
                "-keyout", "\(ca).key", "-out", "\(ca).csr", "-subj", "/CN=\(ca == "stranger" ? "issuing" : ca)")
        }
        for ca in ["root", "stranger"] {
            try run(
                ca, "ca", "-config", "ca.cnf", "-batch", "-selfsign", "-in", "\(ca).csr", "-out", "\(ca).pem",
                "-notext",
                "-extensions", "authority")
        }
        try run(
            "root", "ca", "-config", "ca.cnf", "-batch", "-in", "issuing.csr", "-out", "issuing.pem", "-notext",
            "-extensions", "authority")
        self.directory = directory
        (root, issuing) = (try Self.read("root", directory), try Self.read("issuing", directory))
    }

    private static func read(_ name: String, _ directory: TemporaryDirectory) throws -> X509Certificate {
        try X509Certificate.certificates(pem: String(decoding: directory.read("\(name).pem"), as: UTF8.self))[0]
    }

    @discardableResult
    func openssl(_ ca: String, _ arguments: String...) throws -> [UInt8] {
        try Subprocess.run(["env", "CA=\(ca)", "openssl"] + arguments, in: directory.path)
    }

    /// - Parameter extensions: The section of the configuration.
    func issue(_ name: String, _ extensions: String = "leaf") throws -> Identity {
        try openssl(
            "issuing", "req", "-new", "-config", "ca.cnf", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-noenc", "-keyout", "\(name).key", "-out", "\(name).csr", "-subj", "/CN=\(name)")
        try openssl(
            "issuing", "ca", "-config", "ca.cnf", "-batch", "-in", "\(name).csr", "-out", "\(name).pem", "-notext",
            "-extensions", extensions)
        try openssl(
            "issuing", "pkcs8", "-topk8", "-nocrypt", "-outform", "DER", "-in", "\(name).key", "-out", "\(name).p8")
        return try Identity(
            certificateChain: [Self.read(name, directory), issuing],
            key: SoftwareKey(pkcs8: SecretBytes(copying: directory.read("\(name).p8")), location: .file),
            provenance: .init(provider: ProviderID("test"), alias: name))
    }

    func revoke(_ name: String, by ca: String = "issuing") throws {
        try openssl(ca, "ca", "-config", "ca.cnf", "-revoke", "\(name).pem")
    }

    /// Returns the PEM of a list.
    func list(_ ca: String, _ options: String...) throws -> [UInt8] {
        try Subprocess.run(
            ["env", "CA=\(ca)", "openssl", "ca", "-config", "ca.cnf", "-gencrl"]
                + (options.contains { $0.hasPrefix("-crl_") || $0 == "-crlhours" } ? [] : ["-crldays", "7"]) + options,
            in: directory.path)
    }
}
