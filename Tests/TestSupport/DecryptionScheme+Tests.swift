public import CertificateProviding

extension DecryptionScheme {
    /// Those that the framework knows, most preferred first.
    public static let known: [DecryptionScheme] = [.rsaOAEPSHA256, .rsaOAEPSHA1, .rsaPKCS1]

    /// A block that no scheme takes: the padding is that of an RSA signature. Other ciphertexts, damaged or of OAEP, have
    /// the padding of RSAES-PKCS1-v1_5 by chance: up to one in 400.
    public static func opensslEncryptWithWrongPadding(for key: PublicKeyInfo) throws -> [UInt8] {
        let block = [0, 1] + [UInt8](repeating: 0xff, count: 200) + [0] + [UInt8](repeating: 1, count: 53)
        return try opensslEncrypt(block, for: key, "-pkeyopt rsa_padding_mode:none")
    }

    /// The scheme for `openssl pkeyutl`.
    public var opensslOptions: String {
        guard self != .rsaPKCS1 else { return "-pkeyopt rsa_padding_mode:pkcs1" }
        let hash = self == .rsaOAEPSHA256 ? "sha256" : "sha1"
        return "-pkeyopt rsa_padding_mode:oaep -pkeyopt rsa_oaep_md:\(hash) -pkeyopt rsa_mgf1_md:\(hash)"
    }

    /// Encrypts with OpenSSL's command, which has nothing to do with this package.
    public func opensslEncrypt(_ plaintext: [UInt8], for key: PublicKeyInfo) throws -> [UInt8] {
        try Self.opensslEncrypt(plaintext, for: key, opensslOptions)
    }

    private static func opensslEncrypt(
        _ plaintext: [UInt8], for key: PublicKeyInfo, _ options: String
    ) throws -> [UInt8] {
        let directory = try TemporaryDirectory()
        try directory.write(key.derRepresentation, to: "key")
        let command = "openssl pkeyutl -encrypt -pubin -keyform DER -inkey key \(options)"
        return try Subprocess.run(command.split(separator: " ").map(String.init), input: plaintext, in: directory.path)
    }
}
