import Synchronization
import X509

/// Issuer lookup by subject name, with a bounded number of candidates.
///
/// CA certificates that certify each other form too many paths to try them all, and each step costs a signature
/// verification. A search therefore gets a limited number of issuers, and none after its task was cancelled.
struct IssuerStore: CustomCertificateStore {
    /// The number of issuers that one search gets from all its stores.
    final class SearchBudget: Sendable {
        /// Hierarchies in use have about five levels, with a few certificates for each CA.
        private static let whole = 64

        private let left = Mutex(whole)

        /// Whether the search asked for more issuers than the budget had.
        var isSpent: Bool { left.withLock { $0 < 0 } }

        func take(_ issuers: [Certificate]) -> [Certificate] {
            left.withLock { left in
                defer { left = left < issuers.count ? -1 : left - issuers.count }
                return Array(issuers.prefix(max(left, 0)))
            }
        }
    }

    private var issuers: [DistinguishedName: [Certificate]] = [:]
    private let budget: SearchBudget

    /// - Parameter certificates: Those that swift-certificates cannot read are left out.
    init(_ certificates: [X509Certificate], _ budget: SearchBudget) {
        self.budget = budget
        var seen: Set<X509Certificate> = []
        let unique = certificates.filter { seen.insert($0).inserted }
        // Certificates of the same authority, such as an old and a renewed one, are in the order of their ends, the latest
        // first.
        append(
            contentsOf: unique.sorted { $0.notValidAfter > $1.notValidAfter }.compactMap { try? $0.certificate() })
    }

    subscript(subject: DistinguishedName) -> [Certificate]? {
        get async {
            guard !Task.isCancelled, let found = issuers[subject] else { return nil }
            return budget.take(found)
        }
    }

    func contains(_ certificate: Certificate) async -> Bool {
        issuers[certificate.subject]?.contains(certificate) ?? false
    }

    mutating func append(contentsOf certificates: some Sequence<Certificate>) {
        for certificate in certificates { issuers[certificate.subject, default: []].append(certificate) }
    }

    static func == (one: Self, other: Self) -> Bool {
        one.budget === other.budget && one.issuers == other.issuers
    }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(budget)) }
}
