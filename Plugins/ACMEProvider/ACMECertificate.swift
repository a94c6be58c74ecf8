import CertificateProviding
import FoundationEssentials
import Logging
import NIOHTTP1
import ProviderTransport

/// Downloads issued certificates, and revokes them (RFC 8555, sections 7.4.2 and 7.6).
struct ACMECertificates {
    let client: ACMEClient
    private var settings: ACMESettings { client.settings }

    /// Downloads the certificate of an order, with the chain to the preferred root if the server has one.
    ///
    /// - Parameter key: That of the certificate.
    func chain(
        of order: ACMEOrder, for key: PublicKeyInfo, _ account: ACMEAccount
    ) async throws(ProviderError) -> [X509Certificate] {
        guard let url = order.certificate else {
            throw ProviderError(
                .protocolError,
                "\(client.serverName) has issued, but does not name the certificate's URL; look for the reason in its log."
            )
        }
        let (chain, alternates) = try await download(url, account)
        guard let preferred = settings.preferredChain, !chain.leads(to: preferred) else { return chain }
        return await alternative(to: chain, leadingTo: preferred, alternates, key, account) ?? chain
    }

    /// Looks among the alternate chains of the same certificate for one that leads to the preferred root. They are optional (section
    /// 7.4.2): one that cannot be downloaded costs no identity.
    ///
    /// - Returns: `nil` if there is none, with a warning.
    private func alternative(
        to chain: [X509Certificate], leadingTo root: String, _ alternates: [String], _ key: PublicKeyInfo,
        _ account: ACMEAccount
    ) async -> [X509Certificate]? {
        let leaf = chain.first { $0.publicKey == key }
        var reason = "it has none that leads there"
        for url in alternates.prefix(8) {
            do throws(ProviderError) {
                let (other, _) = try await download(url, account, isOptional: true)
                guard other.leads(to: root) else { continue }
                if leaf.map(other.contains) == true { return other }
                reason = "\(url.shown) is the chain of another certificate"
            } catch { reason = error.message }
        }
        client.environment.logger.warning(
            "the server has no chain to the preferred root; its default is used",
            metadata: ["preferred-chain": "\(DisplayText.visible(root))", "reason": "\(reason)"])
        return nil
    }

    /// Downloads a chain. Returns the URLs of other ones, too.
    ///
    /// - Throws: With the reason `endedOrder` for an answer that another attempt would get again, and `missingCertificate` for another one
    ///   than the certificate.
    private func download(
        _ url: String, _ account: ACMEAccount, isOptional: Bool = false
    ) async throws(ProviderError) -> ([X509Certificate], alternates: [String]) {
        let response: HTTPResponse
        do throws(ProviderError) {
            response = try await client.post(
                to: url, by: account.signer, accepting: "application/pem-certificate-chain",
                isRepeatable: !isOptional, isOptional: isOptional)
        } catch {
            var error = error
            // Such as one that is cut off, or too large.
            if error.code == .protocolError { error.reason = .missingCertificate }
            throw error
        }
        guard response.status == 200 else {
            var refusal = client.refusal(
                response, of: "the request for the certificate", advice: "look for the reason in its log")
            if refusal.code != .unavailable { (refusal.code, refusal.reason) = (.unavailable, .missingCertificate) }
            throw refusal
        }
        let chain: [X509Certificate]
        do throws(ProviderError) {
            chain = try X509Certificate.certificates(pem: String(decoding: response.body, as: UTF8.self))
        } catch {
            // A page of something in between is of another type.
            let isServers = response.mediaType == "application/pem-certificate-chain"
            throw ProviderError(
                .protocolError,
                "\(client.serverName) has issued a certificate, but its answer is not a PEM chain: \(error.message)",
                reason: isServers ? .endedOrder : .missingCertificate)
        }
        return (chain, response.links("alternate", from: url))
    }

    private struct Revocation: Encodable {
        let certificate: String
        let reason: Int?
    }

    /// Revokes a certificate: by the account, or by the certificate's own key.
    ///
    /// - Parameter account: `nil` if this host has none.
    func revoke(
        _ identity: Identity, _ reason: RevocationReason, by account: ACMEAccount?
    ) async throws(ProviderError) {
        guard let url = try await client.directory().revokeCert else {
            throw ProviderError(
                .operationNotAllowed, "\(client.serverName) revokes no certificates; ask its administrator.")
        }
        let payload = try JSONText.encode(
            Revocation(
                certificate: ByteText.base64URL(identity.certificate.derRepresentation),
                reason: reason == .unspecified ? nil : reason.rawValue))
        var response: HTTPResponse?
        if let account { response = try await client.post(payload, to: url, by: account.signer) }
        // The account may be another one than that which the certificate was issued to.
        if response == nil || response?.problem?.kind == "unauthorized" {
            response = try await client.post(payload, to: url, by: try RequestSigner(identity.key))
        }
        guard let response, response.problem?.kind != "alreadyRevoked" else { return }
        guard (200...299).contains(response.status) else {
            throw client.refusal(response, of: "the request for a revocation")
        }
    }
}

extension [X509Certificate] {
    /// Whether the chain ends in, or below, a root with this subject, its parts in any order, or this common name.
    func leads(to root: String) -> Bool {
        guard let last else { return false }
        // openssl(1) writes blanks, too.
        func parts(_ name: String) -> Set<[String]> {
            Set(name.lowercased().split(separator: ",").map { $0.split(separator: "=").map { String($0.trimming) } })
        }
        let name = parts(last.issuer)
        return name == parts(root) || name.contains(["cn", root.lowercased()])
    }
}

extension HTTPResponse {
    /// Returns the targets of the links with a relation (RFC 8288), which may be relative to the URL of the response.
    func links(_ relation: String, from base: String) -> [String] {
        headers[canonicalForm: "Link"].flatMap { $0.split(separator: ",") }.compactMap { link in
            let parts = link.split(separator: ";").map(\.trimming)
            guard let target = parts.first, target.hasPrefix("<"), target.hasSuffix(">"),
                parts.dropFirst().contains(where: {
                    ["rel=\"\(relation)\"", "rel=\(relation)"].contains($0.lowercased())
                })
            else { return nil }
            let text = String(target.dropFirst().dropLast())
            return URL(string: text, relativeTo: URL(string: base))?.absoluteString ?? text
        }
    }
}
