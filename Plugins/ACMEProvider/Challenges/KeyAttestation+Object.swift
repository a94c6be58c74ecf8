import CertificateProviding

extension KeyAttestation {
    /// The attestation object of WebAuthn (section 6.5), without authenticator data (draft-ietf-acme-device-attest-10).
    var object: CBOR {
        var statement = fields.mapValues(CBOR.bytes)
        statement["alg"] = .integer(algorithm)
        statement["x5c"] = .array(chain.map { .bytes($0.derRepresentation) })
        statement["sig"] = .bytes(signature)
        if format == .tpm { statement["ver"] = .text("2.0") }
        return .map(["fmt": .text(format.rawValue), "attStmt": .map(statement)])
    }
}
