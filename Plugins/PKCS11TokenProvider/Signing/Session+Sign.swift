import CP11Kit
import CertificateProviding

extension Session {
    /// Signs with a key of the token. Blocks.
    ///
    /// - Parameters:
    ///   - mechanisms: Those of one scheme; the next one is tried where the token does not know one after all. For a digest,
    ///     those that hash are passed over.
    ///   - modulusBits: The size of an RSA key; not used for others.
    ///   - authenticate: Called between `C_SignInit` and `C_Sign`, where a key demands the PIN for each signature.
    func sign(
        _ content: SignedContent, with key: CK_OBJECT_HANDLE, by mechanisms: [SigningMechanism], modulusBits: Int,
        authenticate: ((Session) throws(CryptokiError) -> Void)?
    ) throws(CryptokiError) -> TokenSignature {
        var refusal = CryptokiError(function: "C_SignInit", code: CKR_KEY_SIZE_RANGE)
        for mechanism in mechanisms {
            guard let input = mechanism.input(for: content, modulusBits: modulusBits) else { continue }
            do throws(CryptokiError) { try initialize(mechanism, key) } catch {
                guard error.code == CKR_MECHANISM_INVALID || error.code == CKR_MECHANISM_PARAM_INVALID else {
                    throw error
                }
                refusal = error
                continue
            }
            try authenticate?(self)
            return TokenSignature(bytes: try sign(input), scheme: mechanism.scheme)
        }
        throw refusal
    }

    private func sign(_ input: [UInt8]) throws(CryptokiError) -> [UInt8] {
        var input = input
        let inputCount = CK_ULONG(input.count)
        return try withUnsafeTemporaryAllocation(of: UInt8.self, capacity: Self.maximumSignatureSize) {
            signature throws(CryptokiError) in
            // A module may claim to have written more than it has: the rest must not be old memory.
            signature.initialize(repeating: 0)
            var count = CK_ULONG(signature.count)
            try call("C_Sign") { $0.C_Sign?(handle, &input, inputCount, signature.baseAddress, &count) }
            guard count <= CK_ULONG(signature.count) else {
                throw CryptokiError(function: "C_Sign", code: CKR_BUFFER_TOO_SMALL)
            }
            return Array(signature.prefix(Int(count)))
        }
    }

    /// RSA with 16384 bits.
    private static let maximumSignatureSize = 2048

    private func initialize(_ signing: SigningMechanism, _ key: CK_OBJECT_HANDLE) throws(CryptokiError) {
        var mechanism = CK_MECHANISM(mechanism: signing.type, pParameter: nil, ulParameterLen: 0)
        guard signing.isPSS, let parameters = signing.hash?.pssParameters else {
            return try call("C_SignInit") { $0.C_SignInit?(handle, &mechanism, key) }
        }
        var pss = parameters
        try call("C_SignInit") { functions in
            withUnsafeMutablePointer(to: &pss) { pointer in
                mechanism.pParameter = UnsafeMutableRawPointer(pointer)
                mechanism.ulParameterLen = CK_ULONG(MemoryLayout<CK_RSA_PKCS_PSS_PARAMS>.size)
                return functions.C_SignInit?(handle, &mechanism, key)
            }
        }
    }
}

/// The input of a signature.
enum SignedContent: Sendable {
    case message([UInt8])
    /// A message by its digest, of the scheme's hash function.
    case digest([UInt8])
}

extension SigningMechanism {
    /// Returns the input for the token; `nil` if the key is too small for the padding, and for a digest if the token hashes.
    fileprivate func input(for content: SignedContent, modulusBits: Int) -> [UInt8]? {
        guard takesDigest, let hash else {
            guard case .message(let message) = content else { return nil }
            return message
        }
        let digest =
            switch content {
            case .message(let message): hash.digest(of: message)
            case .digest(let digest): digest
            }
        return switch preparation {
        case .digestInfo: hash.digestInfo(digest)
        case .padded: scheme.encodedMessage(ofDigest: digest, modulusBits: modulusBits)
        case .hash, .message: digest
        }
    }

    /// Whether the mechanism takes the parameters of PSS.
    fileprivate var isPSS: Bool {
        [CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS_PSS, CKM_SHA384_RSA_PKCS_PSS, CKM_SHA512_RSA_PKCS_PSS].contains(
            type)
    }
}
