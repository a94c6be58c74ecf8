import Terminal
import FoundationEssentials
import CertificateProviding
import Contracts

/// The result of `list`.
struct ContractListDocument: CommandDocument {
    static let kind = "ContractList"

    let items: [ContractItem]
}

/// The result of `show`, and of the subcommands that change a contract.
struct ContractDocument: CommandDocument {
    static let kind = "Contract"

    let contract: ContractItem

    init(_ contract: Contract) { self.contract = ContractItem(contract) }
}

/// A contract, as the documents show it.
struct ContractItem: Encodable {
    let id: String
    /// A word of ``ContractState``.
    let state: String
    let received: String
    /// Of the server; `null` for a contract that it does not have.
    let revision: Nullable<Int>
    /// Whether the server has not confirmed what was changed here.
    let unsent: Bool
    let conflict: Nullable<Conflict>
    /// The number in the program that it is from; `null` for -1.
    let number: Nullable<Int>
    let customer: Customer
    let pdf: File
    let attachments: [File]
    let properties: [Property]
    /// What `complete` takes.
    let missing: [String]
    /// Paths of members that the format does not have.
    let unknown: [String]
    /// Those who approve: the customer, then the contractors.
    let signatories: [Signatory]
    /// The earliest first.
    let approvals: [Approval]
    /// Why it was given up; `null` also where no reason was given.
    let abandonment: Nullable<Abandonment>
    /// The last approval of each version that was signed here, and that another one has taken the place of.
    let superseded: [Approval]

    /// What the server has; its members are `null` if it has the contract no longer.
    struct Conflict: Encodable {
        let revision: Nullable<Int>
        let state: Nullable<String>
    }
    struct Customer: Encodable {
        let number: String
        let mode: Int
        let fields: [Field]
    }
    struct Field: Encodable {
        let key: String
        let value: String
    }
    struct File: Encodable {
        let name: String
        let type: String
        let size: Int
        let sha256: String
    }
    struct Property: Encodable {
        let key: String
        let value: Nullable<String>
        let toFill: Bool
    }
    struct Signatory: Encodable {
        let number: Nullable<String>
        let name: String
        let mode: Int
        /// Whether the person can approve now.
        let pending: Bool
    }
    struct Abandonment: Encodable {
        /// The index of one who declines in `signatories`; `null` for a decision of others.
        let signatory: Nullable<Int>
        let reason: String
    }
    struct Approval: Encodable {
        /// The index in `signatories`.
        let signatory: Int
        let approved: String
        let ownIdentity: Bool
        let pdf: Reference
        let evidence: Reference
        let evidenceSignature: Reference

        init(_ approval: ContractApproval) {
            signatory = approval.signatory
            approved = approval.approved.formatted(.iso8601)
            ownIdentity = approval.isByOwnIdentity
            pdf = Reference(approval.pdf)
            evidence = Reference(approval.evidence)
            evidenceSignature = Reference(approval.evidenceSignature)
        }
    }
    struct Reference: Encodable {
        let size: Int
        let sha256: String

        init(_ document: DocumentReference) { (size, sha256) = (document.size, document.sha256) }
    }

    init(_ contract: Contract) {
        let content = contract.content
        func file(_ file: ContractContent.Attachment) -> File {
            File(name: file.name, type: file.type, size: file.document.size, sha256: file.document.sha256)
        }
        id = contract.id
        state = contract.state.rawValue
        received = contract.received.formatted(.iso8601)
        revision = Nullable(contract.revision)
        unsent = contract.isUnsent
        conflict = Nullable(
            contract.conflict.map {
                Conflict(revision: Nullable($0.server?.revision), state: Nullable($0.server?.version.state.rawValue))
            })
        number = Nullable(content.contractID)
        customer = Customer(
            number: content.customerNumber, mode: content.customer.mode.rawValue,
            fields: content.customer.fields.map { Field(key: $0.key, value: $0.value) })
        pdf = file(content.pdf)
        attachments = content.attachments.map(file)
        properties = content.properties.map { Property(key: $0.key, value: Nullable($0.value), toFill: $0.isToFill) }
        missing = content.missing
        unknown = content.unknownMembers
        let pending = contract.version.pending
        signatories = content.signatories.enumerated().map { index, person in
            Signatory(
                number: Nullable(person.number), name: person.name, mode: person.mode.rawValue,
                pending: pending.contains(index))
        }
        approvals = contract.approvals.map { Approval($0) }
        abandonment = Nullable(
            contract.version.abandonment.map {
                Abandonment(signatory: Nullable($0.signatory), reason: $0.reason)
            })
        superseded = contract.superseded.compactMap { $0.last.map { Approval($0) } }
    }
}
