import CertificateProviding

extension IdentityKey {
    /// Signs messages and digests with every scheme that the key offers for them, and with no other, and verifies each
    /// signature. The key's uses are those that work.
    func signsValidlyInEveryScheme() async throws {
        try require(!signatureSchemes.isEmpty, "The key offers no signature scheme.")
        for scheme in signatureSchemes {
            let signature = try await signature(for: Self.message, using: scheme)
            try require(
                publicKey.isValidSignature(signature, for: Self.message, using: scheme),
                "The signature with \(scheme) does not verify with the public key.")
        }
        try await refuses(.unsupportedAlgorithm, "The scheme \(Self.unknown), which the key does not offer,") {
            _ = try await self.signature(for: [1], using: Self.unknown)
        }
        if let digestSigner { try await signsValidlyByDigest(digestSigner) }
        try saysItsUse()
    }

    private static var message: [UInt8] { (0..<100).map { UInt8($0) } }
    private static var unknown: SignatureScheme { SignatureScheme(rawValue: 0xfe00) }

    /// The signature of a digest is one of the message.
    private func signsValidlyByDigest(_ signer: any DigestSigning) async throws {
        let schemes = signer.digestSchemes
        try require(!schemes.isEmpty, "The key has a digest signer that offers no scheme.")
        for scheme in schemes {
            try require(
                signatureSchemes.contains(scheme), "The key signs digests with \(scheme), and messages not.")
            let algorithm = try require(scheme.digestAlgorithm, "The key signs digests with \(scheme), which has none.")
            let digest = algorithm.digest(of: Self.message)
            let signature = try await signer.signature(forDigest: digest, using: scheme)
            try require(
                publicKey.isValidSignature(signature, for: Self.message, using: scheme),
                "The signature of a digest with \(scheme) does not verify over the message.")
            for wrong in [[], Array(digest.dropLast()), digest + [0]] {
                try await refuses(.malformedData, "A digest of \(wrong.count) bytes for \(scheme)") {
                    _ = try await signer.signature(forDigest: wrong, using: scheme)
                }
            }
        }
        for other in [.ed25519, Self.unknown] + signatureSchemes where !schemes.contains(other) {
            let digest = (other.digestAlgorithm ?? .sha256).digest(of: Self.message)
            try await refuses(.unsupportedAlgorithm, "A digest with \(other), for which the key does not offer that,") {
                _ = try await signer.signature(forDigest: digest, using: other)
            }
        }
    }

    /// A key does everything that `use` names, and refuses the rest.
    func saysItsUse() throws {
        try require(
            use.contains(.signing) == !signatureSchemes.isEmpty,
            "The use of the key has signatures, and the key no scheme for them, or the other way round.")
        let schemes = decrypter?.decryptionSchemes ?? []
        for scheme in schemes {
            try require(use.decryptionSchemes.contains(scheme), "The key decrypts by \(scheme), which its use lacks.")
        }
        for kind in [KeyUse.oaepDecryption, .pkcs1Decryption] where use.contains(kind) {
            try require(
                schemes.contains { kind.decryptionSchemes.contains($0) },
                "The use of the key has \(kind.decryptionSchemes), and the key decrypts by none of them.")
        }
    }

    func refuses(
        _ code: ProviderError.Code, _ what: String, _ body: () async throws -> Void
    ) async throws {
        do { try await body() } catch let error as ProviderError {
            return try require(error.code == code, "\(what) is refused with \(error.code), and not with \(code).")
        }
        throw Failure(reason: "\(what) is accepted.")
    }
}
