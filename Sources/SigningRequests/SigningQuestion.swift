package import FoundationEssentials

/// A request that a person, or a rule, decides about. All that is shown is computed from the bytes that are signed, or comes from
/// the registry; what the request says of itself stands apart.
package struct SigningQuestion: Sendable, Codable, Equatable {
    /// Names the request on this host while it waits.
    package var id: String
    package var operation: SigningOperation
    /// The number and the name that the registry has for the client.
    package var client: Int
    package var clientName: String
    /// The service as the request names it, which nothing has checked: untrusted text.
    package var serviceName: String
    /// The last component only; `nil` for a challenge, and for a request without it.
    package var documentName: String?
    package var requestID: String?
    /// How many pages the document says that it has.
    package var pages: Int?
    /// The size of the data, in bytes.
    package var size: Int
    /// The SHA-256 of the data, in hexadecimal digits.
    package var digest: String
    /// The owner's name, the subject and the SHA-256 of the certificate that would sign.
    package var signerName = ""
    package var signer: String
    package var fingerprint: String
    /// When the data was signed before, by this journal.
    package var signedBefore: Date?
    /// The sender of the request, as far as the host knows: a hint.
    package var peer: String
    /// The read-only copy of the document, and the logo, while the request waits.
    package var documentPath: String?
    package var logoPath: String?
    /// When a request of the queue is given up. Elsewhere the time runs from when the question is on the screen.
    package var deadline: Date

    package init(
        id: String, operation: SigningOperation, client: Int, clientName: String, serviceName: String,
        documentName: String?,
        requestID: String?, size: Int, digest: String, signer: String, fingerprint: String, signedBefore: Date?,
        peer: String,
        deadline: Date
    ) {
        self.id = id
        self.operation = operation
        self.client = client
        self.clientName = clientName
        self.serviceName = serviceName
        self.documentName = documentName
        self.requestID = requestID
        self.size = size
        self.digest = digest
        self.signer = signer
        self.fingerprint = fingerprint
        self.signedBefore = signedBefore
        self.peer = peer
        self.deadline = deadline
    }
}

extension SigningOperation: Codable {}
