import CertprovSigning

/// Answers a server's challenge with a key pair, which is made at the first call.
///
/// - Returns: The public key and the signature, both for the server.
func answer(
    _ challenge: [UInt8], with name: KeyName, _ logon: CertprovLogon
) async throws -> (publicKey: String, signature: [UInt8]) {
    let keys = try logon.namedKeys()
    if try await !keys.exists(name) { try await keys.create(name, type: .p256, NoUserInteraction()) }
    let pair = try await keys.pair(named: name)
    let signature = try await keys.sign(SigningContent(challenge), with: name, NoUserInteraction())
    return (pair.publicKeyBase64, signature)
}
