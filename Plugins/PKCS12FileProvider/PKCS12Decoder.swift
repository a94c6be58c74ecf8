import CertificateProviding
import OpenSSLSupport
import SwiftASN1

/// Reads a PKCS#12 file (RFC 7292) of any tool of the last thirty years.
///
/// swift-asn1 parses the structure, in memory-safe code; OpenSSL and swift-crypto do the cryptography. Blocks for the
/// key derivations that the file requires, within ``WorkBudget``.
struct PKCS12Decoder {
    let library: OpenSSLLibrary
    let password: SecretBytes?
    var budget = WorkBudget()
    var contents = PKCS12Contents()
    /// The passwords to try; only the right one, once it is known.
    var candidates: [PKCS12Password]
    var isPasswordVerified = false

    /// - Parameter password: UTF-8; `nil` for no password.
    init(library: OpenSSLLibrary, password: SecretBytes?) {
        self.library = library
        self.password = password
        // An absent and an empty password are different keys, and people cannot be asked which one a tool meant.
        if let password, !password.isEmpty {
            candidates = [.utf8(password)]
        } else {
            candidates = [.absent, .utf8(SecretBytes(copying: []))]
        }
    }

    /// Decodes a file.
    ///
    /// - Throws: `wrongPassword`, only if the MAC does not verify; `malformedData`; `unsupportedAlgorithm`.
    mutating func decode(_ file: [UInt8]) throws(ProviderError) -> PKCS12Contents {
        do {
            let pfx = try PFX(file)
            if let mac = pfx.mac { try verify(mac, of: pfx.content) }
            for part in try BER.parse(pfx.content).elements("AuthenticatedSafe") { try decodePart(part) }
            return contents
        } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(
                .malformedData,
                "The file is damaged, or is not a PKCS#12 file (\(Self.describe(error))); export it again.",
                underlying: error)
        }
    }

    private mutating func verify(_ mac: MacData, of content: [UInt8]) throws {
        for candidate in candidates
        where try mac.isValid(for: content, password: candidate, library: library, budget: &budget) {
            // PBKDF2 cannot tell the absent password from the empty one; the encrypted content may.
            if mac.algorithm != .pbmac1 { candidates = [candidate] }
            isPasswordVerified = true
            return
        }
        throw ProviderError(
            .wrongPassword,
            password == nil
                ? "The file needs a password, and none is configured; set 'password-source'."
                : "The password is wrong, or the file is damaged (its MAC does not verify). Check 'password-source'.")
    }

    /// Decodes one `ContentInfo` of the authenticated safe: plain, or encrypted with a password. Skips one that is
    /// encrypted with a public key.
    private mutating func decodePart(_ node: ASN1Node) throws {
        let (type, content) = try BER.sequence(node, identifier: .sequence) { nodes in
            (try ASN1ObjectIdentifier(berEncoded: &nodes), try nodes.required("content").explicitContent(tagNumber: 0))
        }
        switch type {
        case .pkcs7Data:
            try decodeSafeContents(Array(try ASN1OctetString(berEncoded: content).bytes), depth: 0)
        case .pkcs7EncryptedData:
            let (algorithm, ciphertext) = try Self.encryptedContent(content)
            let what = "An encrypted part of the file"
            guard let plain = try decrypt(ciphertext, algorithm, what) else { return }
            try decodeSafeContents(plain.withUnsafeBytes { Array($0) }, depth: 0)
        case .pkcs7EnvelopedData:
            contents.hasPublicKeyEncryptedParts = true
        default:
            throw ASN1Error.invalidASN1Object(reason: "a part of the unknown type \(type)")
        }
    }

    /// `EncryptedData ::= SEQUENCE { version, EncryptedContentInfo }` (RFC 2315, section 13).
    private static func encryptedContent(_ node: ASN1Node) throws -> (algorithm: ASN1Node, ciphertext: [UInt8]) {
        try BER.sequence(node, identifier: .sequence) { nodes in
            _ = try Int(berEncoded: &nodes)
            let info = try nodes.required("encryptedContentInfo")
            while nodes.next() != nil {}
            return try BER.sequence(info, identifier: .sequence) { nodes in
                _ = try ASN1ObjectIdentifier(berEncoded: &nodes)
                let algorithm = try nodes.required("contentEncryptionAlgorithm")
                let tag = ASN1Identifier(tagWithNumber: 0, tagClass: .contextSpecific)
                let ciphertext = try ASN1OctetString(
                    berEncoded: try nodes.required("encryptedContent"), withIdentifier: tag)
                return (algorithm, Array(ciphertext.bytes))
            }
        }
    }

    private mutating func decodeSafeContents(_ bytes: [UInt8], depth: Int) throws {
        for element in try BER.parse(bytes).elements("SafeContents") { try decodeBag(element, depth: depth) }
    }

    private mutating func decodeBag(_ node: ASN1Node, depth: Int) throws {
        let bag = try SafeBag(berEncoded: node)
        switch bag.type {
        case .keyBag:
            try budget.spendOnKey()
            addKey(SecretBytes(copying: bag.value.encodedBytes), bag)
        case .shroudedKeyBag:
            try budget.spendOnKey()
            let (algorithm, ciphertext) = try BER.sequence(bag.value, identifier: .sequence) { nodes in
                (try nodes.required("encryptionAlgorithm"), Array(try ASN1OctetString(berEncoded: &nodes).bytes))
            }
            let what = bag.friendlyName.map { "The private key '\(DisplayText.visible($0))'" } ?? "A private key"
            if let key = try decrypt(ciphertext, algorithm, what) { addKey(key, bag) }
        case .certificateBag:
            try budget.spendOnCertificate()
            let (type, value) = try BER.sequence(bag.value, identifier: .sequence) { nodes in
                (try ASN1ObjectIdentifier(berEncoded: &nodes), try nodes.explicitOctetString("certValue"))
            }
            guard type == .x509Certificate else { return }
            do throws(ProviderError) {
                contents.certificates.append(
                    .init(
                        certificate: try X509Certificate(derRepresentation: value), friendlyName: bag.friendlyName,
                        localKeyID: bag.localKeyID))
            } catch {
                contents.unreadableCertificates.append(error)
            }
        case .safeContentsBag:
            guard depth < WorkBudget.maximumNesting else {
                throw ASN1Error.invalidASN1Object(reason: "safe contents nested too deeply")
            }
            for element in try bag.value.elements("SafeContents") { try decodeBag(element, depth: depth + 1) }
        default:
            break  // CRLs and secrets are not ours.
        }
    }

    private mutating func addKey(_ pkcs8: SecretBytes, _ bag: SafeBag) {
        do throws(ProviderError) {
            let (key, publicKey) = try Self.readable(pkcs8, library)
            contents.keys.append(
                .init(pkcs8: key, publicKey: publicKey, friendlyName: bag.friendlyName, localKeyID: bag.localKeyID))
        } catch {
            contents.unusable.append(error)
        }
    }

    /// Returns the key with its public key. OpenSSL, which is more lenient, first re-encodes a key that swift-crypto
    /// does not accept.
    private static func readable(
        _ pkcs8: SecretBytes, _ library: OpenSSLLibrary
    ) throws(ProviderError) -> (SecretBytes, PublicKeyInfo) {
        do throws(ProviderError) {
            return (pkcs8, try PublicKeyInfo(ofPrivateKey: pkcs8))
        } catch {
            guard error.code == .malformedData, let normalized = try? library.normalizedPKCS8(pkcs8) else {
                throw error
            }
            return (normalized, try PublicKeyInfo(ofPrivateKey: normalized))
        }
    }

    private static func describe(_ error: any Error) -> String {
        guard let code = (error as? ASN1Error)?.code else { return "\(type(of: error))" }
        return code == .truncatedASN1Field ? "it is cut off" : "its ASN.1 is not valid: \(code)"
    }
}

extension ASN1Node {
    /// The elements of a SEQUENCE OF.
    fileprivate func elements(_ what: String) throws -> ASN1NodeCollection {
        guard identifier == .sequence, case .constructed(let elements) = content else {
            throw ASN1Error.invalidASN1Object(reason: "\(what) is not a SEQUENCE")
        }
        return elements
    }
}
