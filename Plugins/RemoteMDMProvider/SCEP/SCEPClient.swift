import CertificateProviding
import Enrolment
import FoundationEssentials
import Logging
import OpenSSLSupport
import ProviderTransport
import SwiftASN1
import X509

/// The Simple Certificate Enrolment Protocol (RFC 8894).
///
/// The CA is authenticated by its fingerprint or a trust anchor, so the transport need not be TLS.
struct SCEPClient: Sendable {
    typealias Transport = @Sendable (HTTPRequest) async throws(ProviderError) -> HTTPResponse
    /// Returns the challenge password for a request, if there is one; may ask the user for it.
    typealias Challenge = @Sendable (EnrolmentRequest) async throws(ProviderError) -> SecretBytes?

    let configuration: SCEPConfiguration
    let library = OpenSSLLibrary()
    private let challenge: Challenge
    let now: @Sendable () -> Date
    let logger: Logger
    let transport: Transport
    /// Whether the last response has refused credentials for HTTP.
    let hasRefusedCredentials: @Sendable () async -> Bool
    private let knownAuthorities = CachedAnswer<SCEPAuthorities>()
    private let knownCapabilities = CachedAnswer<SCEPCapabilities>()

    /// - Parameter challenge: Called after the CA was authenticated, and not for a pending request. A renewal is
    ///   authenticated by the current certificate; some servers want the challenge as well.
    init(
        _ configuration: SCEPConfiguration, challenge: @escaping Challenge, now: @escaping @Sendable () -> Date,
        logger: Logger, transport: @escaping Transport,
        hasRefusedCredentials: @escaping @Sendable () async -> Bool = { false }
    ) {
        self.configuration = configuration
        self.challenge = challenge
        self.now = now
        self.logger = logger
        self.transport = transport
        self.hasRefusedCredentials = hasRefusedCredentials
    }

    /// Returns the certificates that may have issued. No secret has been sent up to then.
    func authorities() async throws(ProviderError) -> [X509Certificate] {
        try await currentAuthorities().issuers
    }

    /// Returns the answer to GetCACert.
    func currentAuthorities() async throws(ProviderError) -> SCEPAuthorities {
        try await knownAuthorities { () async throws(ProviderError) in try await fetchAuthorities() }
    }

    /// Returns the answer to GetCACaps.
    func capabilities() async throws(ProviderError) -> SCEPCapabilities {
        try await knownCapabilities { () async throws(ProviderError) in try await fetchCapabilities() }
    }

    /// Returns the current trust anchors and the certificates of the next CA; `nil` if the next CA cannot be
    /// determined.
    func lastingAuthorities(
        among authorities: [X509Certificate]
    ) async throws(ProviderError) -> [X509Certificate]? {
        let anchors = try await currentAuthorities().anchors
        do {
            let next = try await nextAuthorities()
            let issuing = next.filter(\.isAuthority)
            return anchors + (issuing.isEmpty ? next : issuing).filter { !anchors.contains($0) }
        } catch {
            guard await !endsRun(error) else { throw error }
            if error.code == .notFound { return anchors }
            logger.warning("the SCEP server's next CA cannot be determined", metadata: ["error": "\(error)"])
            // Confirmed just now, if nothing is known yet.
            return configuration.known.isEmpty ? anchors : nil
        }
    }

    /// Requests a certificate, or asks again for a pending one.
    func enrol(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        let now = now()
        let signer = try SCEPSigner(for: request, now: now)
        let authorities = try await currentAuthorities()
        let capabilities = try await capabilities()
        let digest = try capabilities.digest()
        let cipher = try capabilities.cipher(permittingTripleDES: configuration.permitsTripleDES)

        let challenge = request.isPending ? nil : try await challenge(request)
        let csr = try await makeCSR(request, challenge)
        let requester = try await SCEPRequester(signer, csr: csr.parsed, now: now)
        func exchange(_ message: SCEPMessage) async throws(ProviderError) -> EnrolmentAnswer {
            logger.debug(
                "sending a SCEP request",
                metadata: [
                    "messageType": "\(message.type)", "transactionID": "\(message.transactionID)",
                    "digest": "\(digest)", "cipher": "\(cipher)",
                ])
            let encoded = try await message.encoded(
                by: requester, for: authorities.recipient, digest: digest, cipher: cipher, with: library)
            let response = try await performOperation(encoded, canPost: capabilities.canPost)
            let reply = try SCEPReply(
                response.body, to: message, signers: authorities.signers,
                redaction: Redaction(challenge.map { [$0] } ?? []),
                with: library)
            switch reply.status {
            case .pending: return .pending(retryAfter: response.retryAfter(now: now))
            case .success(let envelope):
                return .issued(try await certificates(in: envelope, for: requester, reply: reply))
            }
        }
        if request.isPending {
            let names = try SCEPMessage.issuerAndSubject(
                issuerDER: authorities.issuerDER, subject: csr.parsed.subject)
            return try await exchange(SCEPMessage(.certPoll, names, key: request.key.publicKey))
        }
        let initial = SCEPMessage(.pkcsReq, csr.der, key: request.key.publicKey)
        // A CA that does not support RenewalReq recognises a renewal by its signer.
        guard signer.current != nil, capabilities.canRenew else { return try await exchange(initial) }
        do throws(ProviderError) {
            return try await exchange(SCEPMessage(.renewalReq, csr.der, key: request.key.publicKey))
        } catch {
            // Some announce RenewalReq and refuse it. A signed refusal says that nothing was issued.
            guard error.reason == .signedRefusal else { throw error }
            logger.notice(
                "the SCEP server has refused a RenewalReq; sending a PKCSReq, signed with the current certificate",
                metadata: ["reason": "\(error.message)"])
            return try await exchange(initial)
        }
    }

    private func makeCSR(
        _ request: EnrolmentRequest, _ challenge: SecretBytes?
    ) async throws(ProviderError) -> (der: [UInt8], parsed: CertificateSigningRequest) {
        var csr = request.csr
        if let challenge {
            let attribute = try CertificateSigningRequest.Attribute(challengePassword: challenge)
            csr = try await CertificateRequest(
                request.names, usage: request.usage, attributes: [attribute], key: request.key)
        }
        do {
            return (csr.derRepresentation, try CertificateSigningRequest(derEncoded: csr.derRepresentation))
        } catch {
            throw ProviderError(.internal, "The certificate request cannot be read.")
        }
    }

    /// The ciphers that are accepted from servers. Weak ones do no harm: the certificates inside become public when
    /// they are used.
    private static let ciphers: Set<CMSCipher> = [.aes128CBC, .aes192CBC, .aes256CBC, .tripleDESCBC, .desCBC]

    private func certificates(
        in envelope: [UInt8], for requester: SCEPRequester, reply: SCEPReply
    ) async throws(ProviderError) -> [X509Certificate] {
        let (content, cipher) = try await decrypt(envelope, for: requester)
        logger.debug(
            "the SCEP server has issued", metadata: ["digest": "\(reply.digest)", "cipher": "\(cipher)"])
        return try CertificateBag.certificates(in: content)
    }

    private func decrypt(
        _ message: [UInt8], for requester: SCEPRequester
    ) async throws(ProviderError) -> (content: [UInt8], cipher: CMSCipher) {
        do {
            let envelope = try CMSEnvelope(
                message, for: requester.certificate, accepting: Self.ciphers, with: library)
            guard let decrypter = requester.key.decrypter else {
                throw ProviderError(.internal, "The key that has signed cannot decrypt.")
            }
            let contentKey = try await decrypter.decrypt(envelope.encryptedKey, using: .rsaPKCS1)
            return (try envelope.content(key: contentKey, with: library), envelope.cipher)
        } catch let error as ProviderError where error.code != .malformedData {
            throw error
        } catch {
            let isOld = (error as? OpenSSLError)?.isUnsupportedAlgorithm ?? false
            throw ProviderError(
                isOld ? .unsupportedAlgorithm : .protocolError,
                "The reply of the SCEP server cannot be decrypted: "
                    + "\(error)\(isOld ? "; configure the server for AES." : ".")",
                underlying: error)
        }
    }
}
