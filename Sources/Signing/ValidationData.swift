public import CertificateProviding
import CertificateTLS
import FoundationEssentials
import NIOHTTP1
import OpenSSLSupport
import ProviderTransport

/// The data that verifies a signature when the servers of the CAs are gone, each DER, without duplicates.
struct ValidationData: Sendable {
    private(set) var certificates: [[UInt8]] = []
    /// CertificateLists.
    private(set) var revocationLists: [[UInt8]] = []
    /// OCSPResponses.
    private(set) var ocspAnswers: [[UInt8]] = []

    private let network: TimeStampServer
    private let date: Date
    private let budget: TimeBudget
    private let executor: BlockingExecutor
    private let library = OpenSSLLibrary()
    /// The most bytes of revocation lists that still come.
    private var room = 32 << 20

    /// The most certificates of a chain, and URLs of a kind that are tried for one.
    private static let maximumChain = 16, maximumURLs = 4
    /// The most bytes of everything but a list.
    private static let maximumSize = 64 << 10

    private enum Kind: String {
        case issuer = "issuer's certificate"
        case answer = "OCSP answer"
        case list = "revocation list"
    }

    /// Fetches the data of a signature that has been stamped: nothing above the anchors of the time stamps.
    ///
    /// - Parameter token: The TimeStampToken, DER, verified.
    /// - Throws: `certificateNotUsable` for a certificate that is revoked, or that names no server of such data; `protocolError` for an answer
    ///   that is wrong; errors of the connections: all with the reason `validationData`.
    init(of signer: Signer, _ timeStamps: TimeStampServer, _ token: [UInt8]) async throws(ProviderError) {
        (network, date, executor) = (timeStamps, signer.now(), signer.executor)
        budget = TimeBudget(signer.validationDataTimeout, timeStamps.transport.retryPolicy)
        let (identity, anchors) = (signer.identity, timeStamps.anchors)
        do throws(ProviderError) {
            let known = identity.certificateChain + [identity.root].compactMap(\.self)
            try await addChain(of: identity.certificate, among: known + (identity.trust?.certificates ?? []), upTo: [])
            guard let message = try? CMSSignedMessage(token, in: library), let signer = message.signerCertificate else {
                throw ProviderError(.protocolError, "The signer of the time stamp cannot be told.")
            }
            let others = message.certificates.compactMap { try? X509Certificate(derRepresentation: $0) }
            try await addChain(
                of: try X509Certificate(derRepresentation: signer), among: others + anchors, upTo: anchors)
        } catch {
            var error = error
            error.reason = .validationData
            throw error
        }
    }

    /// Adds a chain, and the state of each certificate in it but of the last: a root, or one of the anchors.
    private mutating func addChain(
        of leaf: X509Certificate, among known: [X509Certificate], upTo anchors: [X509Certificate]
    ) async throws(ProviderError) {
        var certificate = leaf
        let start = certificates.count
        for _ in 0..<Self.maximumChain {
            // The chains of the signer and of the stamp may meet. One that meets itself has no end.
            if let known = certificates.firstIndex(of: certificate.derRepresentation) {
                if known < start { return }
                throw ProviderError(
                    .certificateNotUsable,
                    "The chain of '\(leaf.subject)' comes back to '\(certificate.subject)', and has no root.")
            }
            let isLast = certificate.isRoot || anchors.contains(certificate)
            guard !isLast else { return certificates.append(certificate.derRepresentation) }
            let issuer = try await issuer(of: certificate, among: known)
            try await addState(of: certificate, issuedBy: issuer)
            // Now: a certificate that is there already has a state.
            certificates.append(certificate.derRepresentation)
            certificate = issuer
        }
        throw ProviderError(
            .certificateNotUsable, "The chain of '\(leaf.subject)' has more than \(Self.maximumChain) certificates.")
    }

    private mutating func issuer(
        of certificate: X509Certificate, among known: [X509Certificate]
    ) async throws(ProviderError) -> X509Certificate {
        if let issuer = try await Self.issuer(of: certificate, among: known, at: date) { return issuer }
        let missing =
            "Level B-LT needs the certificate '\(certificate.issuer)', and '\(certificate.subject)' names no URL of it (caIssuers). Add it to "
            + "the chain or the trust bundle of the identity."
        return try await first(of: sources(.issuer, certificate.issuerURLs), about: certificate, missing) {
            (data, _, bytes) async throws(ProviderError) in
            // Or those of a SignedData without signers (RFC 5280, section 4.2.2.1).
            let found = (try? data.library.certificates(inSignedData: bytes)) ?? [bytes]
            let issuers = found.compactMap { try? X509Certificate(derRepresentation: $0) }
            guard let issuer = try await Self.issuer(of: certificate, among: issuers, at: data.date) else {
                throw Self.refusal("it is not the certificate of its CA")
            }
            return issuer
        }
    }

    /// Only a certificate whose signature is verified names the next servers.
    private static func issuer(
        of certificate: X509Certificate, among candidates: [X509Certificate], at date: Date
    ) async throws(ProviderError) -> X509Certificate? {
        let path = try await CertificateChain.validated(
            from: certificate, among: [], trusting: candidates.filter { $0 != certificate }, at: date)
        return path?.dropFirst().first
    }

    /// Adds an OCSP answer or a revocation list that says that a certificate is good. OCSP comes first: its answers are small.
    private mutating func addState(
        of certificate: X509Certificate, issuedBy issuer: X509Certificate, permitsOCSP: Bool = true
    ) async throws(ProviderError) {
        guard !certificate.isNeverRevoked else { return }
        let query: OCSPQuery
        do throws(OpenSSLError) {
            query = try OCSPQuery(
                about: certificate.derRepresentation, issuedBy: issuer.derRepresentation, in: library)
        } catch { throw Self.refusal("OpenSSL cannot use '\(certificate.subject)'", error) }
        let points = RevocationList.distributionPoints(of: certificate, in: library)
        let lists = points.compactMap { if case .uri(let url) = $0 { url } else { nil } }
        let missing =
            "Level B-LT needs a server that says whether '\(certificate.subject)' is revoked (OCSP, revocation list), and the certificate names "
            + "none. Have one issued that does, or sign with level B-T."
        try await first(
            of: (permitsOCSP ? sources(.answer, certificate.ocspURLs) : []) + sources(.list, lists),
            about: certificate, missing, body: query.derRepresentation
        ) { (data, kind, bytes) async throws(ProviderError) in
            if kind == .answer {
                try await data.add(answer: bytes, to: query, issuedBy: issuer)
            } else {
                // Reading a large one takes a second.
                try await data.executor.run { [date = data.date] () throws(ProviderError) in
                    try Self.check(list: bytes, about: certificate, issuedBy: issuer, at: date)
                }
                if !data.revocationLists.contains(bytes) { data.revocationLists.append(bytes) }
            }
        }
    }

    private mutating func add(
        answer: [UInt8], to query: OCSPQuery, issuedBy issuer: X509Certificate
    ) async throws(ProviderError) {
        let status: OCSPQuery.Status
        do throws(OpenSSLError) { status = try query.status(in: answer, at: date) } catch {
            throw Self.refusal(error.refusal ?? "its signature is not accepted (\(error))", error)
        }
        switch status {
        case .revoked(let time): throw Self.revoked(time.map { " since \($0.formatted(.iso8601))" } ?? "")
        case .good(let signer?) where !certificates.contains(signer):
            // By a list: an answer about the signer would be signed by the same one.
            do throws(ProviderError) {
                try await addState(
                    of: try X509Certificate(derRepresentation: signer), issuedBy: issuer, permitsOCSP: false)
            } catch {
                throw ProviderError(.protocolError, "it is not known whether its signer is revoked. \(error.message)")
            }
            certificates.append(signer)
        case .good: break
        }
        ocspAnswers.append(answer)
    }

    private static func check(
        list bytes: [UInt8], about certificate: X509Certificate, issuedBy issuer: X509Certificate, at date: Date
    ) throws(ProviderError) {
        let list: RevocationList
        do throws(OpenSSLError) { list = try RevocationList(bytes, in: OpenSSLLibrary()) } catch {
            throw refusal("it is damaged, or not a list in DER", error)
        }
        guard CanonicalName(derEncoded: list.issuerDER) == issuer.subjectName, list.isSigned(by: issuer) else {
            throw refusal("it is not signed by '\(issuer.subject)'")
        }
        guard !list.isSignedWeakly else { throw refusal("it is signed with SHA-1 or weaker") }
        guard !list.revokes(certificate.serialNumber) else { throw revoked(" by it") }
        guard list.coverage(of: certificate) == .whole else {
            throw refusal("it covers only \(list.limit ?? "others")")
        }
        guard list.thisUpdate <= date + OCSPQuery.maximumSkew else {
            throw refusal("it begins later; check this host's clock")
        }
        guard list.nextUpdate ?? date >= date else {
            throw refusal("it is overdue, of \(list.thisUpdate.formatted(.iso8601))")
        }
    }

    private func sources(_ kind: Kind, _ urls: [String]) -> [(kind: Kind, server: ServerURL)] {
        urls.compactMap { ServerURL($0) }.prefix(Self.maximumURLs).map { (kind, $0) }
    }

    /// Asks one server after the other, and returns the first answer that is accepted.
    ///
    /// - Parameters:
    ///   - missing: The message of the error if there is no server.
    ///   - accept: Throws `certificateNotUsable` for a certificate that is revoked: then no other server is asked.
    private mutating func first<Answer>(
        of sources: [(kind: Kind, server: ServerURL)], about certificate: X509Certificate, _ missing: String,
        body: [UInt8] = [], accept: (inout Self, Kind, [UInt8]) async throws(ProviderError) -> Answer
    ) async throws(ProviderError) -> Answer {
        var failure = ProviderError(.certificateNotUsable, missing)
        for (index, (kind, server)) in sources.enumerated() {
            do throws(ProviderError) {
                let bytes = try await response(of: server, kind, body, isOptional: index + 1 < sources.count)
                return try await accept(&self, kind, bytes)
            } catch {
                failure = error
                failure.message =
                    "Level B-LT needs the \(kind.rawValue) for '\(certificate.subject)', from \(server.origin)\(server.target): \(error.message)"
                // A status of such a server is none of a configuration.
                if [.configurationInvalid, .rejected].contains(error.code) { failure.code = .protocolError }
                if error.code == .certificateNotUsable { throw failure }
            }
        }
        throw failure
    }

    private mutating func response(
        of server: ServerURL, _ kind: Kind, _ body: [UInt8], isOptional: Bool
    ) async throws(ProviderError) -> [UInt8] {
        var security = ServerSecurity(trust: ServerTrust(trustAnchors: .system))
        security.settingNames = ServerSettingNames(
            address: "the URL in the certificate", path: "the URL in the certificate",
            trustAnchors: "how it is authenticated", timeout: nil)
        let session = ServerSession(
            server, security, through: try network.proxy.proxy(for: server), timeBudget: budget,
            transport: network.transport)
        var request = HTTPRequest(target: server.target, isRepeatable: true, isOptional: isOptional)
        if kind == .answer {
            (request.method, request.body) = (.post, body)
            request.headers = ["Content-Type": "application/ocsp-request", "Accept": "application/ocsp-response"]
        }
        request.maximumResponse = kind == .list ? room : Self.maximumSize
        let response = try await session.response(to: request)
        guard response.status == 200 else { throw response.refusal(of: "the request", by: server, at: date) }
        if kind == .list { room -= response.body.count }
        return response.body
    }

    private static func refusal(_ clause: String, _ error: OpenSSLError? = nil) -> ProviderError {
        ProviderError(.protocolError, "\(clause).", underlying: error)
    }

    private static func revoked(_ how: String) -> ProviderError {
        ProviderError(.certificateNotUsable, "the certificate is revoked\(how). Obtain another one.")
    }
}

extension ProviderError.Reason {
    /// The signature was made; its validation data cannot be had.
    public static let validationData = Self(rawValue: "validationData")
}
