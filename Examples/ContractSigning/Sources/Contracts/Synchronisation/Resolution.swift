public import CertificateProviding

/// The side of a conflict that a person keeps.
public enum ConflictSide: String, CaseIterable, Sendable {
    /// What was made at this host: it goes to the server again, which may still refuse it.
    case mine
    /// What the server has. A signature made here stays in this host's queue, beside it.
    case server
}

extension ContractQueue {
    /// Ends the conflict of a contract by the decision of a person.
    ///
    /// - Returns: The contract; `nil` if it is gone with the server's.
    /// - Throws: `operationNotAllowed` for a contract without a conflict, and for the side of this host where the server takes no other
    ///   version.
    @discardableResult
    public func resolve(_ id: String, keeping side: ConflictSide) throws(ProviderError) -> Contract? {
        guard let contract = try contract(id), let conflict = contract.conflict else {
            throw ProviderError(.operationNotAllowed, "The contract \(id) has no conflict.")
        }
        if side == .mine, !conflict.canBeSent(contract.version) {
            let state = conflict.server.map { "\($0.version.state)" } ?? ""
            throw ProviderError(
                .operationNotAllowed,
                "The contract \(id) is not sent: the server has it in the state \(state), and takes no other version. Run: contracts resolve \(id) --keep server; a signature made here stays beside the server's version."
            )
        }
        guard side == .mine || conflict.server != nil else {
            try remove(id, evenUnsent: true)
            return nil
        }
        return try change(id) { current throws(ProviderError) in
            guard let conflict = current.conflict else { return }
            current.conflict = nil
            current.revision = conflict.server?.revision
            guard side == .server, let server = conflict.server else {
                current.isUnsent = true
                return
            }
            if !server.version.approvals.starts(with: current.approvals) {
                current.superseded.append(current.approvals)
            }
            (current.version, current.isUnsent) = (server.version, false)
        }
    }
}
