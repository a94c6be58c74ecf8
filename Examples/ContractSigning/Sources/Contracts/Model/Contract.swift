public import FoundationEssentials

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
    /// The approvals of versions that another one has taken the place of, by the decision of a person. Their documents stay.
    public var superseded: [[ContractApproval]] = []

    /// The server's side of a conflict.
    public struct Conflict: Equatable, Sendable {
        /// What the server has; `nil` if it has the contract no longer.
        public var server: ServerContract?

        public init(_ server: ServerContract?) { self.server = server }

        /// Whether the server may take a version in the place of its own. One that has lost the contract may take it again.
        public func canBeSent(_ version: ContractVersion) -> Bool { server?.version.mayBecome(version) ?? true }
    }

    public init(version: ContractVersion, received: Date, revision: Int?, isUnsent: Bool) {
        (self.version, self.received, self.revision, self.isUnsent) = (version, received, revision, isUnsent)
    }

    public var id: String { version.id }
    public var state: ContractState { version.state }
    public var content: ContractContent { version.content }
    public var approvals: [ContractApproval] { version.approvals }

    /// Whether a signature made here is not confirmed by the server: also one that another version has taken the place of.
    public var hasUnsentSignature: Bool { isSignatureUnsent || !superseded.isEmpty }

    /// Whether there are ``approvals`` that the server may not have.
    var isSignatureUnsent: Bool { !approvals.isEmpty && (isUnsent || conflict != nil) }
}
