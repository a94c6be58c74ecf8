import Foundation
import Logging
import ServiceLifecycle
import Synchronization
import UnixSignals
import X509

/// The revocation lists of the client CAs. SIGHUP reads the file again.
final class Revocations: Service {
    private let file: String?
    private let authorities: [Certificate]
    private let lists: Mutex<[RevocationList]>
    private let logger: Logger

    /// - Parameters:
    ///   - file: A PEM file with lists, or nil: no certificate is revoked.
    ///   - authorities: The CAs whose lists count.
    /// - Throws: If a list cannot be read, or is not signed by an authority.
    init(file: String?, authorities: [Certificate], logger: Logger) throws {
        self.file = file
        self.authorities = authorities
        self.logger = logger
        lists = Mutex(try Self.load(file, authorities: authorities))
    }

    /// Whether the certificate's issuer has revoked it, or has a list that is out of date.
    ///
    /// Certificates of an authority without a list are not revoked.
    func isRevoked(_ certificate: Certificate, at date: Date) -> Bool {
        lists.withLock { lists in
            lists.contains { list in
                list.issuer == certificate.issuer
                    && (list.revokes(certificate.serialNumber) || list.nextUpdate.map { $0 < date } ?? false)
            }
        }
    }

    func run() async throws {
        for await _ in await UnixSignalsSequence(trapping: .sighup).cancelOnGracefulShutdown() {
            do {
                let loaded = try Self.load(file, authorities: authorities)
                lists.withLock { $0 = loaded }
                logger.notice("revocation lists read", metadata: ["lists": "\(loaded.count)"])
            } catch {
                logger.error("revocation lists unchanged", metadata: ["reason": "\(error)"])
            }
        }
    }

    private static func load(_ file: String?, authorities: [Certificate]) throws -> [RevocationList] {
        guard let file else { return [] }
        let lists = try RevocationList.load(pemFile: file)
        guard !lists.isEmpty else { throw ConfigurationError("\(file) contains no list in PEM.") }
        for list in lists where !authorities.contains(where: list.isSigned) {
            throw ConfigurationError("\(file): the list of \(list.issuer) is not signed by a client CA.")
        }
        return lists
    }
}
