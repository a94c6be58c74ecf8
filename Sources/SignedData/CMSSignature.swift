/// A SignedData with one signer (RFC 5652, section 5), in DER.
public struct CMSSignature: Sendable {
    /// The value of the signature, which a time stamp is about.
    public let value: [UInt8]
    /// Attributes that the signature does not cover, such as a time stamp of it (section 11).
    public var unsignedAttributes: [CMSSignerAttribute] = []
    private var certificates: [[UInt8]]
    /// Revocation lists, and OCSP answers (RFC 5940).
    private var revocation: [[UInt8]] = []
    private let digestAlgorithm: [UInt8]
    /// The SignerInfo until the signature.
    private let signer: [UInt8]

    init(certificates: [[UInt8]], digestAlgorithm: [UInt8], signer: [UInt8], value: [UInt8]) {
        (self.certificates, self.digestAlgorithm) = (certificates, digestAlgorithm)
        (self.signer, self.value) = (signer, value)
    }

    /// Adds what a verifier needs when the CA's servers are gone, to the fields `certificates` and `crls` (EN 319 122-1, section 6.3, level B-LT).
    ///
    /// - Parameters:
    ///   - certificates: DER, also of a time stamp.
    ///   - revocationLists: Each a CertificateList, DER.
    ///   - ocspAnswers: Each an OCSPResponse, DER.
    package mutating func addValidationData(
        certificates: [[UInt8]], revocationLists: [[UInt8]], ocspAnswers: [[UInt8]]
    ) {
        self.certificates += certificates.filter { !self.certificates.contains($0) }
        // RFC 5652, section 10.2.1: a list as it is, another format as [1]; for OCSP it is id-ri-ocsp-response.
        let identifier = DER.objectIdentifier([1, 3, 6, 1, 5, 5, 7, 16, 2])
        revocation += revocationLists + ocspAnswers.map { DER.value(DER.context(1), identifier + $0) }
    }

    /// Returns the message without its content: a detached signature.
    public func derRepresentation() -> [UInt8] { whole(content: DER.value(DER.sequence, DER.data)) }

    /// Returns the message with its content.
    ///
    /// - Parameter content: The bytes whose digest was signed.
    public func derRepresentation(content: [UInt8]) -> [UInt8] {
        let (head, tail) = derRepresentation(aroundContentOf: content.count)
        return head + content + tail
    }

    /// Returns the two parts of the message before and after its content, which so need not be in memory.
    ///
    /// - Parameter count: The number of bytes of the content.
    public func derRepresentation(aroundContentOf count: Int) -> (head: [UInt8], tail: [UInt8]) {
        let string = DER.header(DER.octetString, count)
        let explicit = DER.header(DER.context(0), string.count + count)
        let type = DER.data
        let encapsulated = DER.header(DER.sequence, type.count + explicit.count + string.count + count)
        let before = encapsulated + type + explicit + string
        return parts(before: before, count: count)
    }

    private func whole(content: [UInt8]) -> [UInt8] {
        let (head, tail) = parts(before: content, count: 0)
        return head + tail
    }

    /// - Parameters:
    ///   - before: The EncapsulatedContentInfo until the content.
    ///   - count: The number of bytes of the content, which follow.
    private func parts(before: [UInt8], count: Int) -> (head: [UInt8], tail: [UInt8]) {
        // Another format of revocation data than a list needs version 5 (section 5.1).
        let version: UInt8 = revocation.contains { $0.first == DER.context(1) } ? 5 : 1
        let algorithms = DER.value(DER.integer, [version]) + DER.value(DER.set, digestAlgorithm)
        let tail =
            DER.value(DER.context(0), Self.sorted(certificates))
            + (revocation.isEmpty ? [] : DER.value(DER.context(1), Self.sorted(revocation)))
            + DER.value(DER.set, DER.value(DER.sequence, signerInfo))
        let rest = algorithms.count + before.count + count + tail.count
        let signedData = DER.header(DER.sequence, rest)
        let explicit = DER.header(DER.context(0), signedData.count + rest)
        let type = DER.signedData
        let message = DER.header(DER.sequence, type.count + explicit.count + signedData.count + rest)
        return (message + type + explicit + signedData + algorithms + before, tail)
    }

    private var signerInfo: [UInt8] {
        let unsigned = Self.sorted(unsignedAttributes.map(\.derRepresentation))
        return signer + DER.value(DER.octetString, value)
            + (unsigned.isEmpty ? [] : DER.value(DER.context(1), unsigned))
    }

    /// The elements of a SET OF, in the order of DER (X.690, section 11.6).
    private static func sorted(_ elements: [[UInt8]]) -> [UInt8] {
        elements.sorted { $0.lexicographicallyPrecedes($1) }.flatMap(\.self)
    }
}
