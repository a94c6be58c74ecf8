import CertificateProviding
import CertificateTLS
import FoundationEssentials
import ProviderTransport

/// A CA for attestation keys that speaks step's two calls: it makes a credential that only the TPM with an endorsement key can open, and
/// certifies the attestation key once it has the secret in it.
struct AttestationAuthority: Sendable {
    let url: ServerURL
    /// A PEM file.
    let trustAnchors: String
    let environment: ProviderEnvironment

    private static let (longestAnswer, timeout) = (1 << 16, Duration.seconds(10))
    /// The most that a TPM takes of each, with the size before it.
    private static let (longestCredential, longestSecret) = (2 + 132, 2 + 512)
    private static let maximumChain = 8

    /// The facts about a TPM and its new attestation key.
    struct Request: Sendable {
        let endorsementKey: PublicKeyInfo
        let endorsementCertificate: [UInt8]?
        let publicArea: TPMPublicArea
        /// `TPM2B_CREATION_DATA`.
        let creationData: [UInt8]
        let creation: TPMStatement
    }

    private struct Attest: Encodable {
        struct Parameters: Encodable { let `public`, createData, createAttestation, createSignature: Data }
        struct TPMInfo: Encodable { let version = 2 }
        let tpmInfo = TPMInfo()
        let ekCerts: [Data]
        let ek: Data
        let akCert = Data()
        let params: Parameters

        init(_ request: Request) {
            ekCerts = request.endorsementCertificate.map { [Data($0)] } ?? []
            ek = Data(request.endorsementKey.derRepresentation)
            // Without the sizes before them.
            params = Parameters(
                public: Data(request.publicArea.bytes.dropFirst(2)),
                createData: Data(request.creationData.dropFirst(2)),
                createAttestation: Data(request.creation.info), createSignature: Data(request.creation.signature))
        }
    }
    private struct Credential: Decodable { let credential, secret: Data }
    private struct Secret: Encodable { let secret: Data }
    private struct Certified: Decodable { let chain: [Data] }
    /// RFC 9457.
    private struct Problem: Decodable { let detail: String }

    /// Has an attestation key certified.
    ///
    /// - Parameter activate: Opens the credential in the TPM; `nil` if it is not for this TPM and key. Called at most once.
    /// - Returns: The chain, that of the key first.
    /// - Throws: `rejected`, `unavailable`, `timedOut`, `serverNotTrusted`; `protocolError` for a wrong answer.
    func certify(
        _ request: Request,
        _ activate: (_ credential: [UInt8], _ secret: [UInt8]) async throws(ProviderError) -> SecretBytes?
    ) async throws(ProviderError) -> [X509Certificate] {
        let answer: Credential = try await call("attest", Attest(request), for: request.endorsementKey)
        let (credential, encrypted) = ([UInt8](answer.credential), [UInt8](answer.secret))
        guard Self.isSized(credential, atMost: Self.longestCredential),
            Self.isSized(encrypted, atMost: Self.longestSecret)
        else { throw fault("its credential or secret does not have the size that it says, or is too long") }
        guard let secret = try await activate(credential, encrypted) else {
            throw fault("its credential is not for this TPM and this key")
        }
        let certified: Certified = try await call(
            "secret", Secret(secret: secret.withUnsafeBytes { Data($0) }), for: request.endorsementKey)
        guard (1...Self.maximumChain).contains(certified.chain.count) else {
            throw fault("its chain has \(certified.chain.count) certificates, and not 1 to \(Self.maximumChain)")
        }
        let chain: [X509Certificate]
        do throws(ProviderError) {
            chain = try certified.chain.map { der throws(ProviderError) in try X509Certificate(derRepresentation: der) }
        } catch { throw fault("its chain cannot be read: \(error.message)") }
        guard chain[0].publicKey == (try request.publicArea.publicKey(isRestricted: true)) else {
            throw fault("its certificate is for another key")
        }
        if let reason = chain[0].attestationKeyFault { throw fault("its certificate \(reason)") }
        let now = environment.now()
        if let wrong = chain.first(where: { $0.status(at: now) != .valid }) {
            throw fault(
                "a certificate is valid from \(wrong.notValidBefore.formatted(.iso8601)) to "
                    + "\(wrong.notValidAfter.formatted(.iso8601)), and the clock of this host says \(now.formatted(.iso8601))"
            )
        }
        return chain
    }

    /// Whether the bytes are those of a TPM2B, whose size comes first.
    private static func isSized(_ bytes: [UInt8], atMost limit: Int) -> Bool {
        (3...limit).contains(bytes.count) && Int(bytes[0]) << 8 | Int(bytes[1]) == bytes.count - 2
    }

    private func fault(_ reason: String) -> ProviderError {
        ProviderError(
            .protocolError,
            "The attestation CA \(url.authority) does not certify the TPM's attestation key: \(reason). Check "
                + "KeyStore.tpm.attestation-url, and the log of the CA.")
    }

    private func call<Answer: Decodable>(
        _ name: String, _ content: some Encodable, for endorsementKey: PublicKeyInfo
    ) async throws(ProviderError) -> Answer {
        var security = ServerSecurity(
            trust: ServerTrust(trustAnchors: .pemFile(trustAnchors)), now: environment.now,
            executor: environment.executor)
        security.settingNames = ServerSettingNames(
            address: "'attestation-url'", path: "'attestation-url'", trustAnchors: "'attestation-trust-anchors'",
            timeout: nil)
        let session = ServerSession(
            url, security, through: try ProxyChoice.environment(environment.secrets).proxy(for: url),
            timeBudget: TimeBudget(Self.timeout, environment.transport.retryPolicy), transport: environment.transport)
        let base = url.path.hasSuffix("/") ? String(url.path.dropLast()) : url.path
        var request = try HTTPRequest(target: "\(base)/\(name)", json: content)
        (request.followsRedirections, request.maximumResponse) = (false, Self.longestAnswer)
        let response = try await session.response(to: request)
        guard response.status == 200 else {
            throw response.refusal(
                of: "the request for a certificate of the TPM's attestation key", by: url,
                reason: (try? response.json(Problem.self, from: url))?.detail,
                advice: response.status == 403
                    ? "check that the CA knows this TPM, whose endorsement key has the SHA-256 "
                        + DisplayText.hexadecimal(endorsementKey.sha256) : nil, at: environment.now())
        }
        return try response.json(Answer.self, from: url)
    }
}
