import CP11Kit
import CertificateProviding
import Crypto

extension Session {
    /// Signs with a key of the token. Blocks.
    ///
    /// - Parameters:
    ///   - modulusBits: The size of an RSA key; not used for others.
    ///   - authenticate: Called between `C_SignInit` and `C_Sign`, where a key demands the PIN for each signature.
    /// - Returns: What the token gives: r‖s for ECDSA.
    func sign(
        _ message: [UInt8], with key: CK_OBJECT_HANDLE, by way: SigningMechanism, modulusBits: Int,
        authenticate: ((Session) throws(CryptokiError) -> Void)?
    ) throws(CryptokiError) -> [UInt8] {
        guard var input = way.input(for: message, modulusBits: modulusBits) else {
            throw CryptokiError(function: "C_SignInit", code: CKR_KEY_SIZE_RANGE)
        }
        try initialize(way, key)
        try authenticate?(self)
        var signature = [UInt8](repeating: 0, count: Self.maximumSignatureSize)
        var count = CK_ULONG(signature.count)
        let inputCount = CK_ULONG(input.count)
        try module.call("C_Sign") { $0.C_Sign?(handle, &input, inputCount, &signature, &count) }
        guard count <= CK_ULONG(signature.count) else {
            throw CryptokiError(function: "C_Sign", code: CKR_BUFFER_TOO_SMALL)
        }
        return Array(signature.prefix(Int(count)))
    }

    /// RSA with 16384 bits.
    private static let maximumSignatureSize = 2048

    private func initialize(_ way: SigningMechanism, _ key: CK_OBJECT_HANDLE) throws(CryptokiError) {
        var mechanism = CK_MECHANISM(mechanism: way.mechanism, pParameter: nil, ulParameterLen: 0)
        guard way.isPSS, let parameters = way.hash.pssParameters else {
            return try module.call("C_SignInit") { $0.C_SignInit?(handle, &mechanism, key) }
        }
        var pss = parameters
        try module.call("C_SignInit") { functions in
            withUnsafeMutablePointer(to: &pss) { pointer in
                mechanism.pParameter = UnsafeMutableRawPointer(pointer)
                mechanism.ulParameterLen = CK_ULONG(MemoryLayout<CK_RSA_PKCS_PSS_PARAMS>.size)
                return functions.C_SignInit?(handle, &mechanism, key)
            }
        }
    }
}

extension SigningMechanism {
    /// What the token gets to sign; `nil` when the key is too small for the padding.
    fileprivate func input(for message: [UInt8], modulusBits: Int) -> [UInt8]? {
        switch preparation {
        case .message: message
        case .hash: hash(message)
        case .digestInfo: RSAPadding.digestInfo(hash(message), hash)
        case .paddedPKCS1: RSAPadding.pkcs1(hash(message), hash, modulusBits: modulusBits)
        case .paddedPSS: RSAPadding.pss(hash(message), hash, modulusBits: modulusBits)
        }
    }

    /// Whether the mechanism takes the parameters of PSS.
    fileprivate var isPSS: Bool {
        [CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS_PSS, CKM_SHA384_RSA_PKCS_PSS, CKM_SHA512_RSA_PKCS_PSS].contains(
            mechanism)
    }

    /// Returns the signature as TLS carries it: tokens give r‖s for ECDSA (PKCS#11, section 2.3.1), TLS wants DER.
    /// - Throws: `protocolError` for one that has not the right length.
    func encoded(_ signature: [UInt8], token: String) throws(CertificateProviderError) -> [UInt8] {
        do {
            switch scheme {
            case .ecdsaP256SHA256:
                return Array(try P256.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            case .ecdsaP384SHA384:
                return Array(try P384.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            case .ecdsaP521SHA512:
                return Array(try P521.Signing.ECDSASignature(rawRepresentation: signature).derRepresentation)
            default:
                return signature
            }
        } catch {
            throw CertificateProviderError(
                .protocolError,
                "The token '\(token)' returned a signature of \(signature.count) bytes, which \(scheme) does not have.",
                underlying: error)
        }
    }
}
