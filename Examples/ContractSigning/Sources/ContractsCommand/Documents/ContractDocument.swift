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
    let signature: Nullable<Signature>
    /// Signatures made here that another version has taken the place of.
    let superseded: [Signature]

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
    struct Signature: Encodable {
        let approved: String
        let pdf: Reference
        let evidence: Reference
        let evidenceSignature: Reference

        init(_ signature: ContractSignature) {
            approved = signature.approved.formatted(.iso8601)
            pdf = Reference(signature.pdf)
            evidence = Reference(signature.evidence)
            evidenceSignature = Reference(signature.evidenceSignature)
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
            number: content.customerNumber, mode: content.mode.rawValue,
            fields: content.customerFields.map { Field(key: $0.key, value: $0.value) })
        pdf = file(content.pdf)
        attachments = content.attachments.map(file)
        properties = content.properties.map { Property(key: $0.key, value: Nullable($0.value), toFill: $0.isToFill) }
        missing = content.missing
        unknown = content.unknownMembers
        signature = Nullable(contract.signature.map { Signature($0) })
        superseded = contract.superseded.map { Signature($0) }
    }
}
