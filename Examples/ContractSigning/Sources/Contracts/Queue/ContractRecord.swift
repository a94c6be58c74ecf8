import CertificateProviding
import FoundationEssentials

/// The record of a contract, as it is stored. The contents of its versions are documents, since a record holds 1 MiB.
struct ContractRecord: Codable {
    static let prefix = "contract-"

    private struct Version: Codable {
        var state: ContractState
        var content: DocumentReference
        var approvals: [ContractApproval]
        var abandonment: ContractAbandonment?
    }
    private struct Conflict: Codable {
        var revision: Int?
        var version: Version?
    }

    private var current: Version
    private var received: Date
    private var revision: Int?
    private var isUnsent: Bool
    private var offered: [String]?
    private var conflict: Conflict?
    private var superseded: [[ContractApproval]]
    /// All documents, so that those of a content need not be looked up.
    private(set) var documents: [DocumentReference]

    /// As ``Contract/hasUnsentSignature``.
    var hasUnsentSignature: Bool {
        !current.approvals.isEmpty && (isUnsent || conflict != nil) || !superseded.isEmpty
    }

    /// - Parameter contents: Gets the contents of the versions, which are to be stored.
    init(_ contract: Contract, contents: inout [[UInt8]]) {
        func version(_ version: ContractVersion) -> Version {
            let bytes = version.content.json.bytes
            contents.append(bytes)
            return Version(
                state: version.state, content: DocumentReference(of: bytes), approvals: version.approvals,
                abandonment: version.abandonment)
        }
        current = version(contract.version)
        (received, revision, isUnsent) = (contract.received, contract.revision, contract.isUnsent)
        conflict = contract.conflict.map { conflict in
            Conflict(revision: conflict.server?.revision, version: conflict.server.map { version($0.version) })
        }
        offered = contract.offered.isEmpty ? nil : contract.offered
        superseded = contract.superseded
        documents = Set(
            contract.version.documents + (contract.conflict?.server?.version.documents ?? [])
                + contract.superseded.flatMap(\.documents) + contents.map { DocumentReference(of: $0) }
        ).sorted { $0.sha256 < $1.sha256 }
    }

    func contract(
        _ id: String, documents keeping: any DocumentKeeping
    ) throws(ProviderError) -> Contract {
        func version(_ version: Version) throws(ProviderError) -> ContractVersion {
            // What was stored is read, whatever is accepted of new files.
            let json = try JSONValue(
                parsing: try keeping.read(version.content), maximumSize: .max, maximumDepth: 2 * JSONValue.maximumDepth)
            return ContractVersion(
                id: id, state: version.state, content: try ContractContent(json), approvals: version.approvals,
                abandonment: version.abandonment)
        }
        var contract = Contract(
            version: try version(current), received: received, revision: revision, isUnsent: isUnsent)
        if let conflict {
            var server: ServerContract?
            if let revision = conflict.revision, let other = conflict.version {
                server = ServerContract(revision: revision, version: try version(other))
            }
            contract.conflict = Contract.Conflict(server)
        }
        contract.superseded = superseded
        contract.offered = offered ?? []
        return contract
    }
}

extension VersionedRecord {
    /// The format of a record of the contracts.
    init(named name: String) {
        self.init(of: name, ifDamaged: "restore it from a backup", writtenBy: "contracts")
    }
}
