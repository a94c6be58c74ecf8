import CertificateProviding
import Enrolment
import ProviderTransport

/// An authorisation (RFC 8555, section 7.1.4).
struct ACMEAuthorization: Decodable, Sendable {
    struct Challenge: Decodable, Sendable {
        let type: String
        let url: String
        let status: ACMEStatus?
        let token: String?
        let error: ACMEProblem?
    }
    let identifier: ACMEOrder.Identifier
    let status: ACMEStatus
    let challenges: [Challenge]
    let wildcard: Bool?

    var name: String { (wildcard == true ? "*." : "") + identifier.value.shown }
    /// Why the server has not accepted the proof.
    var problem: ACMEProblem? { challenges.lazy.compactMap(\.error).first }
}

/// Answers the challenges of an order.
struct ACMEAuthorizations {
    let client: ACMEClient
    let account: ACMEAccount
    let responder: ChallengeResponder
    /// The key to be certified.
    let key: any IdentityKey
    let interaction: any UserInteraction
    private var settings: ACMESettings { client.settings }

    /// One for each name are expected.
    private static let maximum = 256

    /// Answers the challenges of all authorisations that are pending.
    ///
    /// - Returns: The delay that the server asks for.
    func prove(_ order: ACMEOrder) async throws(ProviderError) -> Duration? {
        guard order.authorizations.count <= Self.maximum else {
            throw ProviderError(
                .protocolError,
                """
                \(client.serverName) wants \(order.authorizations.count) proofs for \(settings.plan.names.displayText), more than the \
                \(Self.maximum) that certprov gives; look for the reason in the server's log.
                """)
        }
        let thumbprint = try account.signer.webKey.thumbprint()
        var answers: [ChallengeAnswer] = []
        var delays: [Duration] = []
        for url in order.authorizations {
            let (authorization, told) = try await client.read(
                ACMEAuthorization.self, from: url, by: account.signer, "the request for an authorisation")
            if authorization.status == .valid { continue }
            // The order has ended with it.
            guard authorization.status == .pending else { throw failure(authorization) }
            if let told { delays.append(told) }
            // Its name goes to the program of 'dns-hook', and this host proves no other ones.
            guard let name = settings.identifiers.first(where: { $0.isProven(by: authorization) }) else {
                throw ProviderError(
                    .protocolError,
                    """
                    \(client.serverName) wants a proof for \(authorization.name), which is not among 'identifiers'; it is not given. \
                    Look for the reason in the server's log.
                    """)
            }
            answers.append(try ChallengeAnswer(try challenge(of: authorization), for: name, thumbprint: thumbprint))
        }
        guard !answers.isEmpty else { return nil }
        if !answers.allSatisfy(responder.isInPlace) {
            let names = answers.map { $0.identifier.value.shown }.joined(separator: ", ")
            interaction.report("Proving \(names) by \(settings.challenge.rawValue)")
        }
        try await responder.begin(answers)
        for answer in answers where responder.needsSubmission(answer) {
            let response = try await client.post(try await payload(of: answer), to: answer.url, by: account.signer)
            guard (200...299).contains(response.status) else {
                // It may have been submitted by a run that was killed.
                if response.status == 400, response.problem?.kind == "malformed" { continue }
                throw client.refusal(response, of: "the answer to a challenge")
            }
            responder.noteSubmission(of: answer)
            if let told = client.retryAfter(response) { delays.append(told) }
        }
        return delays.max()
    }

    /// The payload that tells the server that an answer is in place; for device-attest-01, the answer itself.
    private func payload(of answer: ChallengeAnswer) async throws(ProviderError) -> [UInt8] {
        guard answer.kind == .deviceAttest else { return Array("{}".utf8) }
        guard let attester = key.attester else { throw settings.keyCannotAttest }
        let attestation = try await attester.attestation(of: answer.digest)
        try attestation.check(for: key.publicKey, of: answer.digest)
        return try JSONText.encode(["attObj": ByteText.base64URL(attestation.object.encoded)])
    }

    private func challenge(
        of authorization: ACMEAuthorization
    ) throws(ProviderError) -> ACMEAuthorization.Challenge {
        let offered = authorization.challenges.prefix(16).map(\.type.shown).joined(separator: ", ")
        guard settings.challenge != .none else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) wants a proof for \(authorization.name), and 'challenge' is none; set it to one of: \(offered)."
            )
        }
        guard let challenge = authorization.challenges.first(where: { $0.type == settings.challenge.rawValue }) else {
            throw ProviderError(
                .configurationInvalid,
                "\(client.serverName) offers no challenge \(settings.challenge.rawValue) for \(authorization.name); set 'challenge' to one "
                    + "of: \(offered).")
        }
        return challenge
    }

    /// Why an order has ended: the authorisation that has failed says more than the order, for which many servers give no reason at all.
    ///
    /// - Returns: `nil` if no authorisation has a reason.
    func failure(of order: ACMEOrder) async -> ProviderError? {
        for url in order.authorizations.prefix(Self.maximum) {
            guard let response = try? await client.post(to: url, by: account.signer, isRepeatable: true),
                let authorization = try? response.json(ACMEAuthorization.self, from: settings.directory)
            else { break }
            if authorization.problem != nil { return failure(authorization) }
        }
        return nil
    }

    private func failure(_ authorization: ACMEAuthorization) -> ProviderError {
        let problem = authorization.problem
        // Another statement about the same key would fail, too.
        let isFinal = problem?.kind == "badAttestationStatement"
        return ProviderError(
            .rejected,
            """
            \(client.serverName) has not accepted the proof for \(authorization.name), and its authorisation is \
            '\(authorization.status.rawValue)'\(problem.reasonForMessage); \(problem?.adviceForProof ?? adviceForProof). The next \
            attempt makes a new \(isFinal ? "key and " : "")order.
            """, reason: isFinal ? .refusedStatement : .endedOrder)
    }

    /// The next step after a proof that the server has not accepted.
    private var adviceForProof: String {
        switch settings.challenge {
        case .http where settings.httpRoot == nil:
            "check that port 80 of the name leads to port \(settings.httpListen.port) of this host ('http-listen'), and that no firewall or "
                + "other program answers"
        case .http:
            "check that port 80 of the name leads to the web server of 'http-root', and that it serves files below "
                + "/.well-known/acme-challenge"
        case .tlsALPN:
            "check that port 443 of the name leads to port \(settings.tlsListen.port) of this host ('tls-listen'), and that no firewall or "
                + "other program answers"
        case .dns: "check that the program of 'dns-hook' publishes the record where the server looks"
        case .deviceAttest, .none: "look for the reason in the server's log"
        }
    }
}
