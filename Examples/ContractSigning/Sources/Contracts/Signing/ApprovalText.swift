package import CertificateProviding

/// What a signature says of an approval, for readers of the PDF to show: for whom it is, and what showed that.
package struct ApprovalText: Sendable {
    /// The most characters of a name: the page has little room.
    private static let maximumName = 80

    /// `/Name`.
    package let name: String
    /// `/Reason`.
    package let reason: String

    /// - Parameters:
    ///   - isByOwnIdentity: Whether the identity is the person's own.
    ///   - certificate: Of the identity.
    package init(of signatory: Signatory, isByOwnIdentity: Bool, certificate: X509Certificate) {
        name = DisplayText.claim(signatory.name, limit: Self.maximumName)
        let subject = DisplayText.claim("\(certificate.subject)", limit: Self.maximumName)
        if isByOwnIdentity {
            reason = "Approved by an identity of the person's own: \(subject)"
        } else {
            let codes = signatory.codes.map {
                "code sent by \($0.channel.rawValue) to \(CustomerField.masked($0.address))"
            }
            let way = codes.isEmpty ? "in person at this host" : "by " + codes.joined(separator: " and ")
            reason = "Approved \(way); sealed by \(subject) for \(name)"
        }
    }
}
