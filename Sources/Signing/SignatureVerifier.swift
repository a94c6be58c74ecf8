public import CertificateProviding
public import CertificateTLS
public import FoundationEssentials
import OpenSSLSupport
import PDFUpdate

/// Verifies signatures: raw, CMS, PDF, and time stamps.
///
/// SHA-1 and MD5 are not accepted, whatever the key. A message has one signer, with signed attributes.
public struct SignatureVerifier: Sendable {
    private let anchors: [X509Certificate]?
    private let stampAnchors: [X509Certificate]?
    private let intermediates: [X509Certificate]
    private let revocation: RevocationCheck?
    private let given: Date?
    private let now: @Sendable () -> Date
    private let executor: BlockingExecutor

    /// Creates a verifier. Blocks while the revocation lists are read.
    ///
    /// - Parameters:
    ///   - anchors: What the signer's certificate must lead to, as in files: roots, or others. `nil` leaves that unknown. There is no default:
    ///     the system trust store is for servers.
    ///   - timeStampAnchors: The same for time stamps; by default `anchors`.
    ///   - intermediates: CA certificates that did not come with the signature.
    ///   - revocationLists: `nil` leaves revocation aside.
    ///   - time: At which the chain must be valid, unless a trusted time stamp says when the signature was there; `nil` for now.
    ///   - now: This host's clock.
    ///   - executor: Reads content; by default a thread of its own, while there is work.
    /// - Throws: `fileNotFound`, `configurationInvalid` and `malformedData` for the lists.
    public init(
        anchors: [X509Certificate]?, timeStampAnchors: [X509Certificate]? = nil,
        intermediates: [X509Certificate] = [], revocationLists: RevocationLists? = nil, time: Date? = nil,
        now: @escaping @Sendable () -> Date = { Date() }, executor: BlockingExecutor = .threads(maximum: 1)
    ) throws(ProviderError) {
        (self.anchors, stampAnchors) = (anchors, timeStampAnchors ?? anchors)
        (self.intermediates, given, self.now, self.executor) = (intermediates, time, now, executor)
        revocation = try revocationLists.map { lists throws(ProviderError) in try RevocationCheck(reading: lists) }
    }

    /// Verifies a bare signature by the key of a certificate.
    ///
    /// - Parameters:
    ///   - scheme: `nil` for that of the curve; for RSA, RSASSA-PKCS1-v1_5 with SHA-256.
    /// - Throws: `storeReadFailed`; `unsupportedAlgorithm` for a scheme that the key does not have, and for content that is too large for
    ///   Ed25519.
    public func raw(
        _ signature: [UInt8], of content: SigningContent, by certificate: X509Certificate,
        scheme: SignatureScheme? = nil
    ) async throws(ProviderError) -> SignatureVerdict {
        let part = try await signed(signature, content, certificate.publicKey, scheme)
        return try await verdict(
            Evidence(form: .raw, certificate: certificate, isUnaltered: part, isSigned: part))
    }

    /// Verifies a bare signature by a public key, which has no certificate: parts about one are not known.
    ///
    /// - Throws: As ``raw(_:of:by:scheme:)-swift.method``.
    public func raw(
        _ signature: [UInt8], of content: SigningContent, by key: PublicKeyInfo, scheme: SignatureScheme? = nil
    ) async throws(ProviderError) -> SignatureVerdict {
        let part = try await signed(signature, content, key, scheme)
        return try await verdict(Evidence(form: .raw, isUnaltered: part, isSigned: part))
    }

    /// Verifies a CMS signature, or a time-stamp token, which is one too.
    ///
    /// - Parameters:
    ///   - message: DER or BER; for a time stamp also the server's answer (RFC 3161, section 2.4.2).
    ///   - content: What was signed or stamped; `nil` if the message has it.
    /// - Throws: `malformedData` for another message; also if there is content twice; `notFound` if there is none;
    ///   `storeReadFailed`.
    public func cms(
        _ message: [UInt8], content: SigningContent? = nil
    ) async throws(ProviderError) -> SignatureVerdict {
        // The answer of a time-stamp server has the token in it.
        let message = (try? TimeStampReply(message, in: OpenSSLLibrary()))?.token ?? message
        let signed = try Self.read(message)
        if signed.isTimeStamp {
            guard let content else {
                throw ProviderError(.notFound, "A time stamp is about content that is not in it; name that content.")
            }
            return try await timeStamp(Evidence(form: .timeStamp), message, content)
        }
        guard (content == nil) != (signed.content == nil) else {
            throw ProviderError(
                content == nil ? .notFound : .malformedData,
                content == nil
                    ? "The signature is detached: name the content that was signed."
                    : "The signature has its content in it: name no other.")
        }
        return try await verdict(
            of: signed, content ?? SigningContent(signed.content ?? []), Evidence(form: .cms))
    }

    /// Verifies all signatures of a PDF, the earliest first.
    ///
    /// - Parameter content: A regular file, or in memory. It must not change before the end.
    /// - Throws: `notFound` for a document without a signature; `malformedData` for one that another reader would have to repair;
    ///   `unsupportedAlgorithm` for an encrypted one; `storeReadFailed`.
    public func pdf(_ content: SigningContent) async throws(ProviderError) -> [SignatureVerdict] {
        let document = try content.pdfSource()
        let read: PDFSignatures
        do throws(ProviderError) {
            read = try await executor.run { () throws(ProviderError) in try PDFSignatures(document) }
        } catch {
            guard error.code == .documentNotSignable else { throw error }
            throw ProviderError(
                .unsupportedAlgorithm, "The PDF is encrypted, and signatures in it cannot be verified here.",
                underlying: error)
        }
        guard !read.signatures.isEmpty else { throw ProviderError(.notFound, "The PDF has no signature.") }
        var verdicts: [SignatureVerdict] = []
        for signature in read.signatures {
            verdicts.append(try await verdict(of: signature, read, document))
        }
        return verdicts
    }

    /// Whether a document is another one with nothing but signatures added: it begins with it, byte for byte, and shows the same.
    ///
    /// Whether the signatures are valid is for ``pdf(_:)`` to say. Blocks.
    ///
    /// - Throws: `malformedData` for a document that another reader would have to repair.
    public static func addsOnlySignatures(
        to original: [UInt8], in signed: [UInt8]
    ) throws(ProviderError) -> SignatureVerdict.Part {
        guard signed.count > original.count, signed.starts(with: original) else {
            return .no("it does not begin with the original document")
        }
        let document = PDFSource(signed)
        let read = try PDFSignatures(document)
        let new = read.signatures.filter { $0.end > original.count }
        guard !new.isEmpty, new.allSatisfy({ $0.ranges[0].upperBound >= original.count }) else {
            return .no("no signature was added")
        }
        let later = try read.later(after: original.count)
        switch later.change {
        case .nothing, .signatures: return .yes
        case .formValues: return .no("values of form fields were changed (\(later.reason ?? ""))")
        case .other: return .no(later.reason ?? "it was changed")
        }
    }

    // Parts

    /// The parts of a verdict before the certificate is looked at.
    private struct Evidence {
        var form: SignatureVerdict.Form
        var field, name, reason: String?
        var certificate: X509Certificate?
        var others: [X509Certificate] = []
        var isUnaltered = SignatureVerdict.Part.unknown("")
        var isSigned = SignatureVerdict.Part.unknown("")
        /// `nil` if the chain is searched for.
        var isTrusted: SignatureVerdict.Part?
        var claimedTime: Date?
        var timeStamp: SignatureVerdict.Stamp?
        var coverage: SignatureVerdict.Coverage?
    }

    private static func read(_ message: [UInt8]) throws(ProviderError) -> CMSSignedMessage {
        do { return try CMSSignedMessage(message, in: OpenSSLLibrary()) } catch {
            throw ProviderError(
                .malformedData, "This is not a CMS signature that can be verified: \(Self.reason(error)).",
                underlying: error)
        }
    }

    private static func reason(_ error: OpenSSLError) -> String { error.refusal ?? "its CMS is damaged" }

    private func verdict(
        of signature: PDFFieldSignature, _ read: PDFSignatures, _ document: PDFSource
    ) async throws(ProviderError) -> SignatureVerdict {
        var evidence = Evidence(form: signature.isTimeStamp ? .timeStamp : .pdf, field: signature.field)
        evidence.others = read.certificates.compactMap { try? X509Certificate(derRepresentation: $0) }
        (evidence.name, evidence.reason) = (signature.name, signature.reason)
        evidence.claimedTime = signature.claimedTime.flatMap(Self.date)
        if let later = signature.later {
            evidence.coverage = .init(
                signedBytes: signature.end, size: read.size, laterRevisions: later.count, change: later.change.public,
                reason: later.reason)
        }
        if let problem = signature.problem {
            evidence.isUnaltered = .no(problem)
            evidence.isSigned = .unknown("its signed bytes are not known")
            return try await verdict(evidence)
        }
        let content = SigningContent(signature.ranges, of: document)
        switch signature.subFilter {
        case "ETSI.RFC3161": return try await timeStamp(evidence, signature.contents, content)
        case "ETSI.CAdES.detached", "adbe.pkcs7.detached":
            let message: CMSSignedMessage
            do throws(OpenSSLError) { message = try CMSSignedMessage(signature.contents, in: OpenSSLLibrary()) } catch {
                evidence.isUnaltered = .unknown(Self.reason(error))
                evidence.isSigned = error.refusal == nil ? .no(Self.reason(error)) : evidence.isUnaltered
                return try await verdict(evidence)
            }
            guard message.content == nil else {
                evidence.isUnaltered = .no("its CMS has content of its own")
                evidence.isSigned = .unknown("its CMS has content of its own")
                return try await verdict(evidence)
            }
            return try await verdict(of: message, content, evidence)
        default:
            let reason =
                signature.subFilter.isEmpty
                ? "it has no /SubFilter"
                : "signatures of the kind \(signature.subFilter.withVisibleControls) are not supported"
            evidence.isUnaltered = .unknown(reason)
            evidence.isSigned = .unknown(reason)
            return try await verdict(evidence)
        }
    }

    private func verdict(
        of message: CMSSignedMessage, _ content: SigningContent, _ known: Evidence
    ) async throws(ProviderError) -> SignatureVerdict {
        var evidence = known
        let certificates = message.certificates.filter { $0 != message.signerCertificate }
        evidence.certificate = message.signerCertificate.flatMap { try? X509Certificate(derRepresentation: $0) }
        evidence.others += certificates.compactMap { try? X509Certificate(derRepresentation: $0) }
        evidence.claimedTime = message.signingTime ?? evidence.claimedTime
        if let algorithm = message.digestAlgorithm {
            let digest = try await executor.run { () throws(ProviderError) in try content.digest(by: algorithm) }
            evidence.isUnaltered =
                !message.isOfData || !message.isContentTypeSigned
                ? .unknown("the content is of another type than data")
                : message.messageDigest == digest ? .yes : .no("their digest is another than the one that was signed")
        } else {
            evidence.isUnaltered = .unknown("the digest \(message.digestName) is not accepted")
        }
        do throws(OpenSSLError) {
            try message.verifySigner()
            evidence.isSigned = evidence.certificate?.publicKey.weakness.map { .unknown($0) } ?? .yes
        } catch {
            evidence.isSigned =
                switch evidence.certificate?.publicKey {
                case nil: .unknown("the certificate of its signer is not in it")
                case let key? where ![.rsa, .ec, .ed25519].contains(key.algorithm):
                    .unknown("signatures of a key of the kind \(key.displayName) are not supported")
                default:
                    error.isUnsupportedAlgorithm
                        ? .unknown(error.refusal ?? "its algorithm is not supported")
                        : .no(error.refusal ?? "the signature is wrong")
                }
        }
        if let token = message.timeStamp {
            evidence.timeStamp = stamp(token, ofSignature: message.signature, evidence.others)
        }
        return try await verdict(evidence)
    }

    /// The time stamp of a signature.
    private func stamp(
        _ der: [UInt8], ofSignature value: [UInt8], _ others: [X509Certificate]
    ) -> SignatureVerdict.Stamp? {
        let token: TimeStampToken
        do throws(OpenSSLError) { token = try TimeStampToken(der, in: OpenSSLLibrary()) } catch {
            return .init(time: .distantPast, isTrusted: .no("it cannot be read"))
        }
        guard let algorithm = token.imprintAlgorithm else {
            return .init(time: token.time, isTrusted: .unknown("its digest is not accepted"))
        }
        guard algorithm.digest(of: value) == token.imprint else {
            return .init(time: token.time, isTrusted: .no("it is not one of this signature"))
        }
        let parts = parts(of: token, others)
        return .init(time: token.time, isTrusted: parts.isSigned.holds == false ? parts.isSigned : parts.isTrusted)
    }

    private func parts(
        of token: TimeStampToken, _ others: [X509Certificate]
    ) -> (isSigned: SignatureVerdict.Part, isTrusted: SignatureVerdict.Part) {
        guard let stampAnchors else {
            let reason = "no trust anchors were given"
            return (.unknown(reason), .unknown(reason))
        }
        do throws(OpenSSLError) {
            try token.verify(
                anchors: stampAnchors.map(\.derRepresentation),
                among: (others + intermediates).map(\.derRepresentation), at: given ?? now())
            return (.yes, .yes)
        } catch {
            let reason = error.detail?.replacing("Verify error:", with: "") ?? "the signature is wrong"
            return error.refusesTimeStampSigner ? (.unknown(reason), .no(reason)) : (.no(reason), .unknown(reason))
        }
    }

    private func timeStamp(
        _ known: Evidence, _ der: [UInt8], _ content: SigningContent
    ) async throws(ProviderError) -> SignatureVerdict {
        var evidence = known
        let token: TimeStampToken
        do throws(OpenSSLError) { token = try TimeStampToken(der, in: OpenSSLLibrary()) } catch {
            evidence.isUnaltered = .unknown("the time stamp cannot be read")
            evidence.isSigned = evidence.isUnaltered
            return try await verdict(evidence)
        }
        evidence.certificate = token.certificates.first.flatMap { try? X509Certificate(derRepresentation: $0) }
        evidence.timeStamp = nil
        evidence.claimedTime = token.time
        if let algorithm = token.imprintAlgorithm {
            let digest = try await executor.run { () throws(ProviderError) in try content.digest(by: algorithm) }
            evidence.isUnaltered =
                digest == token.imprint ? .yes : .no("their digest is another than the one that was stamped")
        } else {
            evidence.isUnaltered = .unknown("the digest of the time stamp is not accepted")
        }
        let parts = parts(of: token, evidence.others)
        (evidence.isSigned, evidence.isTrusted) = (parts.isSigned, parts.isTrusted)
        return try await verdict(evidence)
    }

    private func signed(
        _ signature: [UInt8], _ content: SigningContent, _ key: PublicKeyInfo, _ scheme: SignatureScheme?
    ) async throws(ProviderError) -> SignatureVerdict.Part {
        let scheme = if let scheme { scheme } else { try Self.scheme(of: key) }
        let isValid = try await executor.run { () throws(ProviderError) -> Bool in
            guard let algorithm = scheme.digestAlgorithm else {
                return key.isValidSignature(signature, for: try content.bytes(), using: scheme)
            }
            let digest = try content.digest(by: algorithm)
            return OpenSSLLibrary().isValidSignature(signature, ofDigest: digest, by: key, using: scheme)
        }
        if isValid, let weakness = key.weakness { return .unknown(weakness) }
        // Nothing tells which of them is another one.
        return isValid ? .yes : .no("the signature is not one of these bytes by this key with \(scheme)")
    }

    private static func scheme(of key: PublicKeyInfo) throws(ProviderError) -> SignatureScheme {
        let library = OpenSSLLibrary()
        let schemes: [SignatureScheme] = [
            .ecdsaP256SHA256, .ecdsaP384SHA384, .ecdsaP521SHA512, .rsaPKCS1SHA256, .rsaPSSPSSSHA256, .rsaPSSPSSSHA384,
            .rsaPSSPSSSHA512,
        ]
        let curves = ["P-256": SignatureScheme.ecdsaP256SHA256, "P-384": .ecdsaP384SHA384, "P-521": .ecdsaP521SHA512]
        if key.algorithm == .ed25519 { return .ed25519 }
        if let curve = key.curve, let scheme = curves[curve] { return scheme }
        guard key.algorithm == .rsa, let scheme = schemes.dropFirst(3).first(where: { library.permits($0, for: key) })
        else {
            throw ProviderError(
                .unsupportedAlgorithm, "Signatures of a key of the kind \(key.displayName) are not supported.")
        }
        return scheme
    }

    private func verdict(_ evidence: Evidence) async throws(ProviderError) -> SignatureVerdict {
        let isStamped = evidence.timeStamp?.isTrusted.holds == true
        let time = isStamped ? evidence.timeStamp?.time ?? now() : given ?? now()
        var chain: [X509Certificate]?
        var isTrusted = SignatureVerdict.Part.unknown("there is no certificate of the signer")
        if let certificate = evidence.certificate {
            if let known = evidence.isTrusted {
                isTrusted = known
            } else if let anchors {
                do throws(ProviderError) {
                    let result = try await CertificateChain.validation(
                        of: certificate, among: evidence.others + intermediates, trusting: anchors, at: time)
                    chain = result.path
                    isTrusted = chain != nil ? .yes : .no(result.obstacle ?? "it does not lead to the trust anchors")
                } catch {
                    // A certificate that cannot be used must not end the look at other signatures.
                    guard error.code == .unsupportedAlgorithm else { throw error }
                    isTrusted = .unknown(error.message)
                }
            } else {
                isTrusted = .unknown("no trust anchors were given")
            }
        } else if let known = evidence.isTrusted {
            isTrusted = known
        }
        var isNotRevoked: SignatureVerdict.Part?
        if let revocation {
            if let chain {
                do throws(RevocationCheck.Refusal) {
                    try revocation.check(chain, at: given ?? now())
                    isNotRevoked = .yes
                } catch { isNotRevoked = error.isRevoked ? .no(error.clause) : .unknown(error.clause) }
            } else {
                isNotRevoked = .unknown("its chain is not known")
            }
        }
        let maySign: SignatureVerdict.Part =
            switch evidence.certificate?.permits(.signature) {
            case true?: .yes
            case false?: .no("its key usage permits neither digitalSignature nor nonRepudiation")
            case nil: .unknown("there is no certificate of the signer")
            }
        return SignatureVerdict(
            form: evidence.form, field: evidence.field, claimedName: evidence.name, claimedReason: evidence.reason,
            certificate: evidence.certificate, otherCertificates: evidence.others, isUnaltered: evidence.isUnaltered,
            isSigned: evidence.isSigned,
            isTrusted: isTrusted, isNotRevoked: isNotRevoked, maySign: maySign, chain: chain, time: time,
            timeSource: isStamped ? .timeStamp : given == nil ? .now : .given, claimedTime: evidence.claimedTime,
            timeStamp: evidence.timeStamp, coverage: evidence.coverage)
    }

    /// The date of a PDF (ISO 32000-2, 7.9.4), such as `D:20261130120000+01'00'`; without an offset it is taken for UTC.
    private static func date(_ text: String) -> Date? {
        let digits = text.drop { !$0.isNumber }.prefix { $0.isNumber }
        guard digits.count == 14, digits.allSatisfy(\.isASCII) else { return nil }
        let rest = text.drop { !$0.isNumber }.dropFirst(14)
        func number(_ text: some StringProtocol) -> Int { Int(text) ?? 0 }
        let parts = [4, 6, 8, 10, 12, 14].map { end in
            digits.dropFirst(end == 4 ? 0 : end - 2).prefix(end == 4 ? 4 : 2)
        }
        let iso = "\(parts[0])-\(parts[1])-\(parts[2])T\(parts[3]):\(parts[4]):\(parts[5])Z"
        guard let date = try? Date(iso, strategy: .iso8601) else { return nil }
        guard let sign = rest.first, sign == "+" || sign == "-" else { return date }
        let offset = rest.dropFirst().split { !$0.isNumber }.prefix(2).map { number($0) }
        let seconds = (offset.first ?? 0) * 3600 + (offset.dropFirst().first ?? 0) * 60
        return date + TimeInterval(sign == "+" ? -seconds : seconds)
    }
}

extension PublicKeyInfo {
    /// Why signatures of the key prove nothing, as a clause for a message. Chains of certificates with such a key are not valid either.
    fileprivate var weakness: String? {
        guard algorithm == .rsa else { return nil }
        guard bits >= KeyType.smallestRSA else {
            return "the RSA key has \(bits) bits, and one of less than \(KeyType.smallestRSA) can be broken"
        }
        // The DER of an RSA key ends with its exponent.
        guard keyBits.last.map({ $0 % 2 == 1 }) ?? false, keyBits.suffix(3) != [0x02, 0x01, 0x01] else {
            return "the exponent of the RSA key is 1 or even, and its signatures can be forged"
        }
        return nil
    }
}

extension PDFLaterRevisions.Change {
    fileprivate var `public`: SignatureVerdict.Coverage.Change {
        switch self {
        case .nothing: .nothing
        case .signatures: .signatures
        case .formValues: .formValues
        case .other: .other
        }
    }
}
