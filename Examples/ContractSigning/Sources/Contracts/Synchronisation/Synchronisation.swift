public import CertificateProviding
import FoundationEssentials

/// Brings the queue of this host and the server together: first what was made here goes up, documents before their contract, then
/// what has changed comes down.
///
/// Each contract is stored whole, and the cursor after the contracts before it: what a kill interrupts is done again by the next
/// run, with the same result. A signature that was made here is never lost: where the server has something else, the contract
/// is marked with the conflict.
public struct Synchronisation: Sendable {
    /// What a run has done, by the ids of the contracts.
    public struct Outcome: Equatable, Sendable {
        public var sent: [String] = []
        public var received: [String] = []
        public var removed: [String] = []
        /// Contracts whose conflict a person has to decide, old ones too.
        public var conflicts: [String] = []
        /// Contracts that the server has refused, with its sentence. They stay as they are.
        public var refused: [String: String] = [:]
        /// Contracts, of this host or in an answer of the server, that cannot be read, with the reason. They are left out, and stay as they
        /// are.
        public var unreadable: [String: String] = [:]

        public init() {}
    }

    private let queue: ContractQueue
    private let server: any ContractServing
    /// The number of contracts that are asked for at a time.
    private let limit: Int

    /// - Parameter limit: The number of contracts that are asked for at a time.
    public init(_ queue: ContractQueue, with server: any ContractServing, limit: Int = 50) {
        (self.queue, self.server, self.limit) = (queue, server, limit)
    }

    /// Synchronises.
    ///
    /// - Parameter isFull: Whether everything is read anew, and what the server no longer has is removed here, unless it has a signature
    ///   that was not sent.
    /// - Throws: `operationNotAllowed` while another process synchronises, and if the server takes this host for one of another
    ///   account; errors of the server and of the queue. What was done before stays done.
    public func run(isFull: Bool = false) async throws(ProviderError) -> Outcome {
        guard let lease = try queue.leaseSynchronisation() else {
            throw ProviderError(
                .operationNotAllowed,
                "Another process synchronises the contracts of this host; try again when it is done.",
                reason: .busy)
        }
        defer { withExtendedLifetime(lease) {} }
        var outcome = Outcome()
        let unsent = try readable(&outcome).filter { $0.isUnsent && $0.conflict == nil }
        if !unsent.isEmpty {
            // Contracts of one account do not go to another.
            try check(try await changes(after: nil, limit: 1).account)
        }
        for contract in unsent { try await send(contract, &outcome) }
        try await receive(isFull: isFull, &outcome)
        outcome.conflicts = try readable(&outcome).filter { $0.conflict != nil }.map(\.id)
        // Which documents a contract names that cannot be read is not known.
        if outcome.unreadable.isEmpty { try queue.removeUnreferenced() }
        return outcome
    }

    private func readable(_ outcome: inout Outcome) throws(ProviderError) -> [Contract] {
        var contracts: [Contract] = []
        for entry in try queue.entries() {
            switch entry.contract {
            case .success(let contract): contracts.append(contract)
            case .failure(let error):
                outcome.unreadable[entry.id] =
                    "\(error.message) To delete it here: contracts resolve \(entry.id) --keep server"
            }
        }
        return contracts
    }

    // MARK: - Up

    private func send(_ contract: Contract, _ outcome: inout Outcome) async throws(ProviderError) {
        do throws(ProviderError) {
            for document in contract.version.documents where try await !server.hasDocument(document) {
                try await server.putDocument(try queue.content(of: document))
            }
            // Before it is sent: the answer may be lost, and a person go on here.
            let offered = try queue.change(contract.id) { $0.offer(contract.version) }.offered
            var result = try await server.put(contract.version, after: contract.revision)
            if case .conflict(let other?) = result, other.version != contract.version,
                offered.contains(other.version.digest)
            {
                result = try await server.put(contract.version, after: other.revision)
            }
            switch result {
            case .accepted(let revision):
                try queue.change(contract.id) { current in
                    (current.revision, current.offered) = (revision, [])
                    // A person may have gone on since.
                    if current.version == contract.version { current.isUnsent = false }
                }
                outcome.sent.append(contract.id)
            case .conflict(let other):
                if try await !mark(contract.id, with: other) { outcome.sent.append(contract.id) }
            }
        } catch {
            guard error.code == .malformedData || error.reason == .damaged else { throw error }
            var reason = error.message
            if let approved = contract.approvals.last?.approved, approved > queue.now() {
                reason +=
                    " It was signed when this host's clock was ahead, and can be sent from \(approved.formatted(.iso8601)) on."
            }
            outcome.refused[contract.id] = reason
        }
    }

    /// - Returns: Whether there is a conflict, and not what was made here, which an earlier run has sent.
    private func mark(_ id: String, with other: ServerContract?) async throws(ProviderError) -> Bool {
        let documents = try await missingDocuments(of: other?.version)
        let marked = try queue.change(id, storing: documents) { current in
            if let other, current.isContained(in: other.version) {
                current.take(other)
            } else {
                current.conflict = Contract.Conflict(other)
            }
        }
        return marked.conflict != nil
    }

    // MARK: - Down

    /// How often a run begins anew, since the server has forgotten a cursor.
    private static let maximumRestarts = 5
    /// So many contracts a run takes.
    private static let maximumContracts = 100_000

    private func changes(after cursor: String?, limit: Int) async throws(ProviderError) -> ContractChanges {
        guard let changes = try await server.changes(after: cursor, limit: limit) else {
            throw ProviderError(
                .protocolError,
                "The server forgets each of its cursors while they are used; look for the reason in its log.")
        }
        return changes
    }

    private func receive(isFull: Bool, _ outcome: inout Outcome) async throws(ProviderError) {
        var (isFull, cursor) = (isFull, isFull ? nil : try queue.state().cursor)
        if cursor == nil { isFull = true }
        var seen: Set<String> = []
        var (restarts, isWhole) = (0, true)
        var cursors: Set<String> = []
        while true {
            let changes: ContractChanges
            if cursor == nil || restarts == Self.maximumRestarts {
                changes = try await self.changes(after: cursor, limit: limit)
            } else if let some = try await server.changes(after: cursor, limit: limit) {
                changes = some
            } else {
                restarts += 1
                (isFull, cursor, seen, cursors) = (true, nil, [], [])
                continue
            }
            try check(changes.account)
            let isNew = cursors.insert(changes.cursor).inserted && changes.cursor != cursor
            guard !changes.hasMore || isNew && !changes.isEmpty && seen.count < Self.maximumContracts else {
                throw ProviderError(
                    .protocolError,
                    "The server's list of contracts does not end; what came of it is kept. Look for the reason in the server's log."
                )
            }
            for contract in changes.contracts {
                try await receive(contract, isFull: isFull, &outcome)
                seen.insert(contract.version.id)
            }
            outcome.unreadable.merge(changes.unreadable) { $1 }
            seen.formUnion(changes.unreadable.keys)
            // What cannot be read is asked for again by each run, until it can.
            isWhole = isWhole && changes.unreadable.isEmpty
            guard changes.hasMore else {
                if isFull { try removeWhatIsGone(except: seen, &outcome) }
                try queue.changeState { state in
                    state.account = changes.account
                    if isWhole { state.cursor = changes.cursor }
                }
                return
            }
            cursor = changes.cursor
            // A full run that is interrupted begins anew: the server's list is complete only at its end.
            if !isFull, isWhole { try queue.changeState { $0.cursor = changes.cursor } }
        }
    }

    private func check(_ account: String) throws(ProviderError) {
        guard let own = try queue.state().account, own != account else { return }
        throw ProviderError(
            .operationNotAllowed,
            "The server says that this host is paired for \(DisplayText.visible(account)), and its contracts are of \(DisplayText.visible(own)); pair it for that account again, or run: contracts unpair."
        )
    }

    private func receive(
        _ contract: ServerContract, isFull: Bool, _ outcome: inout Outcome
    ) async throws(ProviderError) {
        let id = contract.version.id
        let isDamaged = outcome.unreadable[id] != nil
        guard !isDamaged || isFull else { return }
        let documents = try await missingDocuments(of: contract.version)
        let new = Contract(
            version: contract.version, received: queue.now(), revision: contract.revision, isUnsent: false)
        if isDamaged {
            guard try queue.repair(new, storing: documents) else { return }
            outcome.unreadable[id] = nil
        }
        guard try queue.contract(id) != nil else {
            try queue.put(new, storing: documents)
            outcome.received.append(id)
            return
        }
        let before = try queue.contract(id)
        let after = try queue.change(id, storing: documents) { current in current.take(contract) }
        if isDamaged || after != before, after.conflict == nil { outcome.received.append(id) }
    }

    private func removeWhatIsGone(
        except seen: Set<String>, _ outcome: inout Outcome
    ) throws(ProviderError) {
        for contract in try readable(&outcome) where contract.revision != nil && !seen.contains(contract.id) {
            // One that is signed, and not accepted by the back office, is not given up without a person: the server may stand on an old
            // backup.
            if contract.hasUnsentSignature
                || !contract.approvals.isEmpty && [.inProgress, .toValidate].contains(contract.state)
            {
                try queue.change(contract.id) { $0.conflict = Contract.Conflict(nil) }
            } else {
                try queue.remove(contract.id)
                outcome.removed.append(contract.id)
            }
        }
    }

    /// Returns the contents of the documents that are not here.
    private func missingDocuments(of version: ContractVersion?) async throws(ProviderError) -> [[UInt8]] {
        var contents: [[UInt8]] = []
        for document in Set(version?.documents ?? []) where try !queue.hasContent(of: document) {
            contents.append(try await server.document(document))
        }
        return contents
    }
}

extension Contract {
    /// Whether the server has what was made here: this version, or these approvals, which others or the back office may have followed.
    func isContained(in server: ContractVersion) -> Bool {
        version == server
            || state != .abandoned && !approvals.isEmpty && version.content == server.content
                && server.approvals.starts(with: approvals)
    }

    /// Notes that a version is sent.
    mutating func offer(_ version: ContractVersion) {
        let digest = version.digest
        if !offered.contains(digest) { offered = offered.suffix(Self.maximumOffers - 1) + [digest] }
    }

    private static let maximumOffers = 8

    /// Takes over what the server has.
    mutating func take(_ server: ServerContract) {
        if isContained(in: server.version) {
            (version, revision, isUnsent, conflict) = (server.version, server.revision, false, nil)
            offered = []
        } else if isUnsent, conflict == nil, offered.contains(server.version.digest) {
            // An earlier version of this host, whose answer was lost.
            revision = server.revision
        } else if conflict != nil || !server.version.approvals.starts(with: approvals) {
            // No step of a server takes a signature away: it may stand on an old backup.
            conflict = Conflict(server)
        } else if !isUnsent {
            (version, revision) = (server.version, server.revision)
        } else if revision != server.revision {
            conflict = Conflict(server)
        }
    }
}
