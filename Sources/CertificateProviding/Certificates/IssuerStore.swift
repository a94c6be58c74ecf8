import Synchronization
import X509

/// Certificates by the name that they issue in, for a search that comes to its end.
///
/// The ways through authorities that certify each other are more than can be tried, and each step of each is the check
/// of a signature. A search therefore is handed a limited number of issuers, and none once its task is cancelled.
struct IssuerStore: CustomCertificateStore {
    /// How many issuers a search is handed from all its stores.
    final class SearchBudget: Sendable {
        /// Hierarchies in use have some five levels, with a few certificates for the same authority in each.
        private static let whole = 64

        private let left = Mutex(whole)

        /// Whether there were more than were handed out.
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
        // Of two for the same authority, such as an old and a renewed one, the later one first.
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
