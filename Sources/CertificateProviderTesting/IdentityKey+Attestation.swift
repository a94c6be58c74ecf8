import CertificateProviding

extension IdentityKey {
    /// Proves where it lives over any 32 bytes, and over nothing else.
    func attestsValidly() async throws {
        let attester = try require(attester, "The store says that its keys attest, and the key does not.")
        let data = [UInt8](0..<32)
        let first = try await attester.attestation(of: data)
        try first.check(for: publicKey, of: data)
        let other = Array(data.reversed())
        let second = try await attester.attestation(of: other)
        try second.check(for: publicKey, of: other)
        try require(
            (first.signature, first.fields) != (second.signature, second.fields),
            "The attestations of two data are the same: they do not cover the data.")
        for wrong in [[], Array(data.dropLast()), data + [0]] {
            try await refuses(.malformedData, "An attestation of \(wrong.count) bytes") {
                _ = try await attester.attestation(of: wrong)
            }
        }
    }
}
