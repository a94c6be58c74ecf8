import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import X509

/// The authority of the hosts' certificates: a root of its own, whose key is a file of the state directory.
struct CertificateAuthority: Sendable {
    let certificate: Certificate
    private let key: Certificate.PrivateKey
    /// Of a clock that is behind this one, in seconds.
    private static let skew: TimeInterval = 3600

    /// Makes an authority.
    init(at now: Date = Date()) throws {
        try self.init(key: P256.Signing.PrivateKey(), at: now)
    }

    private init(key: P256.Signing.PrivateKey, at now: Date) throws {
        let key = Certificate.PrivateKey(key)
        let name = try DistinguishedName {
            CommonName("Contract Server CA \(String(UInt32.random(in: .min ... .max), radix: 16))")
        }
        let now = now.wholeSeconds
        self.key = key
        certificate = try Certificate(
            version: .v3, serialNumber: .random(), publicKey: key.publicKey, notValidBefore: now - Self.skew,
            notValidAfter: now + 20 * 365 * 86_400, issuer: name, subject: name,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
                Critical(KeyUsage(keyCertSign: true, cRLSign: true))
                SubjectKeyIdentifier(hash: key.publicKey)
            }, issuerPrivateKey: key)
    }

    private init(certificate: Certificate, key: Certificate.PrivateKey) {
        (self.certificate, self.key) = (certificate, key)
    }

    /// Reads the authority of a state directory, or makes it: `ca.pem` and `ca-key.pem`. Another one than hosts trust is not made.
    static func load(directory: String, hasHosts: Bool = false, at now: Date = Date()) throws -> CertificateAuthority {
        let (keyFile, certificateFile) = ("\(directory)/ca-key.pem", "\(directory)/ca.pem")
        let (key, certificate) = (DisplayText.visible(keyFile), DisplayText.visible(certificateFile))
        let exists = [certificateFile, keyFile].map { FileManager.default.fileExists(atPath: $0) }
        switch (exists[0], exists[1]) {
        case (true, true): return try read(certificateFile, keyFile)
        case (false, true):
            throw ConfigurationError(
                "\(certificate) is missing, while \(key) is there. Restore it from a backup: hosts trust it. "
                    + "If no host has it, remove \(key) as well, and another CA is made.")
        case (true, false):
            throw ConfigurationError(
                "\(key) is missing, while \(certificate) is there. Restore it from a backup: it is the key of the CA that hosts trust."
            )
        case (false, false):
            guard !hasHosts else {
                throw ConfigurationError(
                    "\(certificate) and \(key) are missing, while hosts are paired. Restore them from a backup. "
                        + "If there is none, set an empty directory with --state, and pair each host again.")
            }
            let key = P256.Signing.PrivateKey()
            let authority = try CertificateAuthority(key: key, at: now)
            try PrivateFile.write(Data(key.pemRepresentation.utf8), to: keyFile)
            try PrivateFile.write(Data(try authority.certificate.serializeAsPEM().pemString.utf8), to: certificateFile)
            return authority
        }
    }

    private static func read(_ certificateFile: String, _ keyFile: String) throws -> CertificateAuthority {
        func parse<Value>(_ file: String, _ kind: String, _ parse: (String) throws -> Value) throws -> Value {
            let name = DisplayText.visible(file)
            let text = String(decoding: try ConfigurationError.data(ofFile: file, name), as: UTF8.self)
            do { return try parse(text) } catch {
                throw ConfigurationError("\(name) is not \(kind) in PEM. Restore it from a backup.")
            }
        }
        let certificate = try parse(certificateFile, "a certificate") { try Certificate(pemEncoded: $0) }
        let key = try parse(keyFile, "a private key") { try Certificate.PrivateKey(pemEncoded: $0) }
        guard key.publicKey == certificate.publicKey else {
            throw ConfigurationError(
                "\(DisplayText.visible(keyFile)) is not the key of \(DisplayText.visible(certificateFile)). Restore both from a backup."
            )
        }
        return CertificateAuthority(certificate: certificate, key: key)
    }

    /// Issues the certificate of a host. It is for a TLS client (`clientAuth`) and for signatures: NSS accepts a CMS only from a
    /// certificate for mail (`emailProtection`), and other validators a signature only with `nonRepudiation`.
    ///
    /// - Parameter account: Becomes the alternative name.
    func issue(
        _ subject: DistinguishedName, _ publicKey: Certificate.PublicKey, account: String, lifetime: TimeInterval,
        at now: Date
    ) throws -> Certificate {
        try issue(
            subject, publicKey, names: Self.names(of: account), usages: [.clientAuth, .emailProtection],
            lifetime: lifetime, at: now)
    }

    /// The alternative name of an account; `nil` for one that is not ASCII, which a mail address of a certificate is (RFC 5280, section
    /// 4.2.1.6).
    static func names(of account: String) -> SubjectAlternativeNames? {
        account.utf8.allSatisfy { $0 < 0x80 } ? SubjectAlternativeNames([.rfc822Name(account)]) : nil
    }

    /// Issues a certificate for this server, for tests and for a start without one.
    func issueServer(
        names: [String], _ publicKey: Certificate.PublicKey, lifetime: TimeInterval, at now: Date
    ) throws -> Certificate {
        let alternatives = names.map { name in
            Self.ipv4Address(name).map { GeneralName.ipAddress(ASN1OctetString(contentBytes: $0[...])) }
                ?? .dnsName(name)
        }
        return try issue(
            DistinguishedName { CommonName(names.first ?? "localhost") }, publicKey,
            names: SubjectAlternativeNames(alternatives), usages: [.serverAuth], lifetime: lifetime, at: now)
    }

    /// Whether a text is a host name (RFC 1123, section 2.1), or an IPv4 address.
    static func isServerName(_ name: String) -> Bool {
        let labels = name.split(separator: ".", omittingEmptySubsequences: false)
        let isName = labels.allSatisfy { label in
            (1...63).contains(label.utf8.count) && !label.hasPrefix("-") && !label.hasSuffix("-")
                && label.utf8.allSatisfy { $0 == UInt8(ascii: "-") || Self.alphanumerics.contains($0) }
        }
        // A name whose last label is a number would be an address.
        return ipv4Address(name) != nil || isName && name.utf8.count <= 253 && Int(labels.last ?? "") == nil
    }

    private static let alphanumerics = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789".utf8)

    private static func ipv4Address(_ text: String) -> [UInt8]? {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        let address = parts.compactMap { UInt8($0) }
        return parts.count == 4 && address.count == 4 ? address : nil
    }

    private func issue(
        _ subject: DistinguishedName, _ publicKey: Certificate.PublicKey, names: SubjectAlternativeNames?,
        usages: [ExtendedKeyUsage.Usage], lifetime: TimeInterval, at now: Date
    ) throws -> Certificate {
        let now = now.wholeSeconds
        return try Certificate(
            version: .v3, serialNumber: .random(), publicKey: publicKey, notValidBefore: now - min(Self.skew, lifetime),
            notValidAfter: min(now + lifetime, certificate.notValidAfter), issuer: certificate.subject,
            subject: subject,
            extensions: Certificate.Extensions {
                Critical(BasicConstraints.notCertificateAuthority)
                Critical(KeyUsage(digitalSignature: true, nonRepudiation: !usages.contains(.serverAuth)))
                try ExtendedKeyUsage(usages)
                if let names { names }
                SubjectKeyIdentifier(hash: publicKey)
                AuthorityKeyIdentifier(keyIdentifier: SubjectKeyIdentifier(hash: key.publicKey).keyIdentifier)
            }, issuerPrivateKey: key)
    }
}

extension Date {
    /// A certificate has whole seconds, and rounded up it would not be valid yet.
    fileprivate var wholeSeconds: Date { Date(timeIntervalSince1970: timeIntervalSince1970.rounded(.down)) }
}

extension Certificate {
    var derRepresentation: [UInt8] {
        get throws {
            var serializer = DER.Serializer()
            try serializer.serialize(self)
            return serializer.serializedBytes
        }
    }
}

extension Certificate.SerialNumber {
    /// Of 16 octets, and positive: longer than 20 it would not be valid (RFC 5280, section 4.1.2.2).
    fileprivate static func random() -> Self {
        var generator = SystemRandomNumberGenerator()
        let first = UInt8.random(in: 0x40...0x7F, using: &generator)
        return Self(bytes: [first] + (1..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    }
}
