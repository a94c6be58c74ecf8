public import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import X509

/// Makes a TPM's statements about keys, without a TPM: its attestation key is in memory.
public struct InventedTPM: Sendable {
    /// The rule that its statements break.
    public enum Flaw: String, CaseIterable, Sendable {
        case none, certificateWithSubject, namesNotCritical, noTPMNames, otherPurpose, authority, otherData, otherKey,
            otherName, otherSignature, notFixed, notCertify, damaged, emptyChain, otherAlgorithm
    }

    private let attestationKey = P256.Signing.PrivateKey()
    private let flaw: Flaw
    public let chain: [X509Certificate]

    public init(_ flaw: Flaw = .none) throws {
        self.flaw = flaw
        let authority = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let issuer = try TestAuthority.name("TPM attestation")
        let tpm: [(ASN1ObjectIdentifier, String)] = [
            ([2, 23, 133, 2, 1], "id:53544D20"), ([2, 23, 133, 2, 2], "software"), ([2, 23, 133, 2, 3], "id:00010002"),
        ]
        let parts = tpm.prefix(flaw == .noTPMNames ? 2 : 3).map { type, value in
            RelativeDistinguishedName(.init(type: type, utf8String: value))
        }
        let names = SubjectAlternativeNames([.directoryName(DistinguishedName(parts))])
        let purposes = try ExtendedKeyUsage([
            flaw == .otherPurpose ? .clientAuth : .init(oid: [2, 23, 133, 8, 3])
        ])
        let extensions = try [
            Certificate.Extension(names, critical: flaw != .namesNotCritical),
            Certificate.Extension(purposes, critical: false),
            Certificate.Extension(
                flaw == .authority
                    ? BasicConstraints.isCertificateAuthority(maxPathLength: nil) : .notCertificateAuthority,
                critical: true),
        ]
        let leaf = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: .init(attestationKey.publicKey),
            notValidBefore: Date() - 3600, notValidAfter: Date() + 86_400, issuer: issuer,
            subject: flaw == .certificateWithSubject ? issuer : DistinguishedName(),
            signatureAlgorithm: .ecdsaWithSHA256,
            extensions: Certificate.Extensions(extensions), issuerPrivateKey: authority)
        var serializer = DER.Serializer()
        try serializer.serialize(leaf)
        chain = flaw == .emptyChain ? [] : [try X509Certificate(derRepresentation: serializer.serializedBytes)]
    }

    /// The ability of a key to attest, by this TPM.
    public func attester(of key: PublicKeyInfo) -> any KeyAttesting { Attester(tpm: self, key: key) }

    private struct Attester: KeyAttesting {
        let tpm: InventedTPM
        let key: PublicKeyInfo

        func attestation(of data: [UInt8]) async throws(ProviderError) -> KeyAttestation {
            try requireAttestable(data)
            return try tpm.attestation(of: data, for: key)
        }
    }

    private static func sized(_ bytes: [UInt8]) -> [UInt8] {
        [UInt8(bytes.count >> 8), UInt8(bytes.count & 0xff)] + bytes
    }

    private func publicArea(of key: PublicKeyInfo) -> [UInt8] {
        let attributes: [UInt8] = [0, 4, 4, flaw == .notFixed ? 0x60 : 0x72]
        if let modulus = key.rsaModulus {
            return [0, 0x01, 0, 0x0b] + attributes + [0, 0, 0, 0x10, 0, 0x10]
                + [UInt8(modulus.count >> 5), UInt8(modulus.count * 8 & 0xff), 0, 0, 0, 0] + Self.sized(modulus)
        }
        let size = (key.keyBits.count - 1) / 2
        let curve: UInt8 = [32: 3, 48: 4, 66: 5][size] ?? 0
        return [0, 0x23, 0, 0x0b] + attributes + [0, 0, 0, 0x10, 0, 0x10, 0, curve, 0, 0x10]
            + Self.sized(Array(key.keyBits[1...size])) + Self.sized(Array(key.keyBits[(size + 1)...]))
    }

    private func attestation(of data: [UInt8], for key: PublicKeyInfo) throws(ProviderError) -> KeyAttestation {
        let another = try PublicKeyInfo(
            derRepresentation: P256.Signing.PrivateKey().publicKey.derRepresentation)
        let area = publicArea(of: flaw == .otherKey ? another : key)
        let named = flaw == .otherName ? publicArea(of: another) : area
        let name = [0, 0x0b] + Array(SHA256.hash(data: named))
        let magic: [UInt8] = [0xff, 0x54, 0x43, 0x47, 0x80, flaw == .notCertify ? 0x18 : 0x17]
        var info = magic + Self.sized(name) + Self.sized(flaw == .otherData ? data.reversed() : data)
        info += [UInt8](repeating: 0, count: 25) + Self.sized(name) + Self.sized(name)
        if flaw == .damaged { info.removeLast() }
        let signed = flaw == .otherSignature ? Array(info.dropLast()) : info
        guard let signature = try? attestationKey.signature(for: signed).derRepresentation else {
            throw ProviderError(.internal, "The software TPM cannot sign.")
        }
        return KeyAttestation(
            tpm: info, pubArea: area, algorithm: flaw == .otherAlgorithm ? -8 : -7, chain: chain,
            signature: Array(signature))
    }
}
