import SwiftASN1

/// The fields of a PKCS#8 `PrivateKeyInfo` (RFC 5208) or `OneAsymmetricKey` (RFC 5958). The key is not checked.
struct PrivateKeyInfo {
    let algorithm: ASN1ObjectIdentifier
    /// The named curve of an EC key.
    let curve: ASN1ObjectIdentifier?
    /// The private key in the encoding of its algorithm.
    let privateKey: ArraySlice<UInt8>
    private let algorithmIdentifier: ArraySlice<UInt8>

    init(derEncoded der: ArraySlice<UInt8>) throws {
        self = try DER.sequence(try DER.parse(der), identifier: .sequence) { nodes in
            _ = try Int(derEncoded: &nodes)  // version
            let identifier = try nodes.required("privateKeyAlgorithm")
            let (algorithm, curve) = try DER.sequence(identifier, identifier: .sequence) { nodes in
                let algorithm = try ASN1ObjectIdentifier(derEncoded: &nodes)
                return (algorithm, nodes.next()?.objectIdentifier)
            }
            let privateKey = try ASN1OctetString(derEncoded: &nodes).bytes
            while nodes.next() != nil {}  // attributes and public key
            return PrivateKeyInfo(
                algorithm: algorithm, curve: curve, privateKey: privateKey,
                algorithmIdentifier: identifier.encodedBytes)
        }
    }

    private init(
        algorithm: ASN1ObjectIdentifier, curve: ASN1ObjectIdentifier?, privateKey: ArraySlice<UInt8>,
        algorithmIdentifier: ArraySlice<UInt8>
    ) {
        self.algorithm = algorithm
        self.curve = curve
        self.privateKey = privateKey
        self.algorithmIdentifier = algorithmIdentifier
    }

    /// Returns a public key with the same algorithm identifier, such as one restricted to RSASSA-PSS.
    func publicKey(_ key: some Collection<UInt8>) throws -> PublicKeyInfo {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { coder in
            coder.serializeRawBytes(algorithmIdentifier)
            try coder.serialize(ASN1BitString(bytes: ArraySlice(key)))
        }
        return try PublicKeyInfo(derRepresentation: serializer.serializedBytes)
    }

    /// Returns the public key of an `RSAPrivateKey` (RFC 8017, appendix A.1.2).
    /// - Throws: `unsupportedAlgorithm` for a key with more than two primes; errors of the parser.
    func rsaPublicKey() throws -> PublicKeyInfo {
        let (modulus, exponent) = try DER.sequence(try DER.parse(privateKey), identifier: .sequence) { nodes in
            let version = try Int(derEncoded: &nodes)
            guard version != 1 else {
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "An RSA key with more than two primes is not supported; have a certificate issued for a key with two."
                )
            }
            let pair = (try nodes.required("modulus").encodedBytes, try nodes.required("exponent").encodedBytes)
            while nodes.next() != nil {}
            return pair
        }
        var serializer = DER.Serializer()
        serializer.appendConstructedNode(identifier: .sequence) { coder in
            coder.serializeRawBytes(modulus)
            coder.serializeRawBytes(exponent)
        }
        return try publicKey(serializer.serializedBytes)
    }

    /// Returns the scalar of an `ECPrivateKey` (RFC 5915, section 3) in `size` bytes. Accepts missing and superfluous
    /// leading zeros, since both occur in practice.
    func ecScalar(size: Int) throws -> [UInt8] {
        let scalar = try DER.sequence(try DER.parse(privateKey), identifier: .sequence) { nodes in
            _ = try Int(derEncoded: &nodes)  // version
            let scalar = try ASN1OctetString(derEncoded: &nodes)
            while nodes.next() != nil {}  // parameters and public key
            return scalar.bytes.drop { $0 == 0 }
        }
        return [UInt8](repeating: 0, count: max(0, size - scalar.count)) + scalar
    }
}

extension PublicKeyInfo {
    /// Reads the public key of a PKCS#8 private key, to match keys and certificates. Accepts RSA keys of any size, with
    /// two primes, without further checks.
    ///
    /// - Throws: As ``SoftwareKey/init(pkcs8:location:)``.
    public init(ofPrivateKey pkcs8: SecretBytes) throws(ProviderError) {
        let rsa = pkcs8.withUnsafeBytes { bytes -> PublicKeyInfo? in
            guard let info = try? PrivateKeyInfo(derEncoded: ArraySlice(bytes)),
                info.algorithm == .rsaEncryption || info.algorithm == .rsassaPSS
            else { return nil }
            return try? info.rsaPublicKey()
        }
        if let rsa {
            self = rsa
        } else {
            self = try SoftwareKey(pkcs8: pkcs8, location: .file).publicKey
        }
    }
}
