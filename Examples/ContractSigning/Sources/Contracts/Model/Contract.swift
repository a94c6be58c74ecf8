public import FoundationEssentials

/// The signed PDF, and the evidence of the signature.
public struct ContractSignature: Codable, Equatable, Sendable {
    public var pdf: DocumentReference
    /// JSON: see the page's section Evidence.
    public var evidence: DocumentReference
    /// Detached CMS of ``evidence``.
    public var evidenceSignature: DocumentReference
    /// When the person approved, to the second.
    public var approved: Date
    /// The server's own proof that the signatory's code was confirmed, in the modes 1 and 3: a server that was restored to a time
    /// before knows it by that. Opaque.
    public var receipt: String?

    public init(
        pdf: DocumentReference, evidence: DocumentReference, evidenceSignature: DocumentReference, approved: Date,
        receipt: String? = nil
    ) {
        (self.pdf, self.evidence, self.evidenceSignature) = (pdf, evidence, evidenceSignature)
        self.receipt = receipt
        self.approved = Date(timeIntervalSince1970: approved.timeIntervalSince1970.rounded(.down))
    }

    /// The three documents.
    public var documents: [DocumentReference] { [pdf, evidence, evidenceSignature] }
}

/// What host and server exchange of a contract.
public struct ContractVersion: Equatable, Sendable {
    /// A UUID in lower case, which names the contract everywhere.
    public let id: String
    public var state: ContractState
    public var content: ContractContent
    /// Present in the states that ``ContractState/isSigned`` names, and in no other.
    public var signature: ContractSignature?

    public init(id: String, state: ContractState, content: ContractContent, signature: ContractSignature? = nil) {
        (self.id, self.state, self.content, self.signature) = (id, state, content, signature)
    }

    /// The SHA-256 of the version as it is sent, in hexadecimal.
    var digest: String { DocumentReference(of: json.bytes).sha256 }

    /// All documents, those of the signature too.
    public var documents: [DocumentReference] { content.documents + (signature?.documents ?? []) }
}

/// A contract of the queue of this host.
public struct Contract: Equatable, Sendable {
    public var version: ContractVersion
    /// When it came here.
    public let received: Date
    /// The revision of the server that this version stands on; `nil` for a contract that the server does not have.
    public var revision: Int?
    /// Whether the version has changes that the server has not confirmed.
    public var isUnsent: Bool
    /// Digests of versions that were sent, and whose answers may have been lost: what the server has of these is no other one's change.
    var offered: [String] = []
    /// Where both sides have changed: a person decides. Its documents are here. `nil` without such a conflict.
    public var conflict: Conflict?
    /// Signatures made here that another version has taken the place of, by the decision of a person. Their documents stay.
    public var superseded: [ContractSignature] = []

    /// The server's side of a conflict.
    public struct Conflict: Equatable, Sendable {
        /// What the server has; `nil` if it has the contract no longer.
        public var server: ServerContract?

        public init(_ server: ServerContract?) { self.server = server }

        /// Whether the server may take a version in this state in the place of its own. One that has lost the contract may take it again.
        public func canBeSent(_ state: ContractState) -> Bool {
            guard let theirs = server?.version.state else { return true }
            return [.incomplete, .inProgress].contains(theirs) && theirs.mayBecome(state)
        }
    }

    public init(version: ContractVersion, received: Date, revision: Int?, isUnsent: Bool) {
        (self.version, self.received, self.revision, self.isUnsent) = (version, received, revision, isUnsent)
    }

    public var id: String { version.id }
    public var state: ContractState { version.state }
    public var content: ContractContent { version.content }
    public var signature: ContractSignature? { version.signature }

    /// Whether a signature made here is not confirmed by the server: also one that another version has taken the place of.
    public var hasUnsentSignature: Bool { isSignatureUnsent || !superseded.isEmpty }

    /// Whether ``signature`` was made here, and is not confirmed by the server.
    var isSignatureUnsent: Bool { signature != nil && (isUnsent || conflict != nil) }
}
