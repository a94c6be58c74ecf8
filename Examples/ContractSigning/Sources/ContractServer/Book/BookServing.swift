import CertificateProviding
import Contracts

/// A book as a host of an account sees it, without a network.
struct BookServing: ContractServing {
    let book: ContractBook
    let account: String
    let notifier: (any CodeNotifying)?

    init(_ book: ContractBook, account: String, notifier: (any CodeNotifying)? = nil) {
        (self.book, self.account, self.notifier) = (book, account, notifier)
    }

    func hasDocument(_ document: DocumentReference) async throws(ProviderError) -> Bool {
        try await run { try await book.sizeOfDocument(document.sha256, of: account) == document.size }
    }

    func putDocument(_ content: [UInt8]) async throws(ProviderError) {
        try await run { _ = try await book.putDocument(content, for: account) }
    }

    func document(_ document: DocumentReference) async throws(ProviderError) -> [UInt8] {
        try await run {
            guard let content = try await book.document(document.sha256, of: account), content.count == document.size
            else { throw Refusal(.notFound, "The server does not have the document \(document.sha256).") }
            return content
        }
    }

    func put(
        _ version: ContractVersion, after revision: Int?
    ) async throws(ProviderError) -> PutOutcome {
        try await run { try await book.put(version, of: account, after: revision).outcome }
    }

    func changes(
        after cursor: String?, limit: Int
    ) async throws(ProviderError) -> ContractChanges? {
        try await run { try await book.changes(of: account, after: cursor, limit: limit) }
    }

    func requestCode(_ request: CodeRequest) async throws(ProviderError) {
        try await run {
            guard let notifier else { throw Refusal(.noNotifier, "The server has no notifier.") }
            try await book.makeCode(request, of: account, notifier: notifier)
        }
    }

    func confirmCode(_ code: String, for request: CodeRequest) async throws(ProviderError) -> String {
        try await run { try await book.confirmCode(code, for: request, of: account) }
    }

    private func run<Result: Sendable>(
        _ work: () async throws -> Result
    ) async throws(ProviderError) -> Result {
        do {
            return try await work()
        } catch let error as ProviderError {
            throw error
        } catch let refusal as Refusal {
            throw refusal.error
        } catch {
            throw ProviderError(.unavailable, "The server failed: \(error)", underlying: error)
        }
    }
}
