import Foundation
import Logging
import ServiceLifecycle

/// Removes documents that no contract has, a day after a host has sent or asked for them.
struct Sweeper: Service {
    static let age: TimeInterval = 86_400

    let book: ContractBook
    let logger: Logger

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while !Task.isCancelled {
                do {
                    try await book.removeUnreferencedDocuments(unseenSince: book.now() - Self.age)
                } catch is CancellationError {
                    return
                } catch {
                    logger.error("documents not removed", metadata: ["reason": "\(error)"])
                }
                try? await Task.sleep(for: .seconds(3600))
            }
        }
    }
}
