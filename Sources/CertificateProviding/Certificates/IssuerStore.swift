import Synchronization
import X509

/// Certificates by the name of their subject, read once for any number of searches.
package struct IssuerIndex: Sendable {
    /// All certificates, in the order in which they were given, without duplicates.
    package let certificates: [X509Certificate]
    private var issuers: [CanonicalName: [Entry]] = [:]
    private struct Entry {
        let certificate: Certificate
        /// As it was given: the same bytes.
        let given: X509Certificate
    }

    /// - Parameter certificates: Those that swift-certificates cannot read are left out.
    package init(_ certificates: [X509Certificate]) {
        var seen: Set<X509Certificate> = []
        self.certificates = certificates.filter { seen.insert($0).inserted }
        // Certificates of the same authority, such as an old and a renewed one, are in the order of their ends, the latest
        // first.
        for given in self.certificates.sorted(by: { $0.notValidAfter > $1.notValidAfter }) {
            guard let certificate = try? given.certificate() else { continue }
            issuers[given.subjectName, default: []].append(Entry(certificate: certificate, given: given))
        }
    }

    subscript(subject: CanonicalName) -> [Certificate]? { issuers[subject]?.map(\.certificate) }

    /// Returns the certificate as it was given; `nil` for another one.
    func given(_ certificate: Certificate) -> X509Certificate? {
        issuers[CanonicalName(certificate.subject)]?.first { $0.certificate == certificate }?.given
    }
}

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

    private let index: IssuerIndex
    private var added: [CanonicalName: [Certificate]] = [:]
    private let budget: SearchBudget

    init(_ index: IssuerIndex, _ budget: SearchBudget) { (self.index, self.budget) = (index, budget) }

    subscript(subject: DistinguishedName) -> [Certificate]? {
        get async {
            guard !Task.isCancelled else { return nil }
            let subject = CanonicalName(subject)
            let found = (index[subject] ?? []) + (added[subject] ?? [])
            return found.isEmpty ? nil : budget.take(found)
        }
    }

    func contains(_ certificate: Certificate) async -> Bool {
        index.given(certificate) != nil || added[CanonicalName(certificate.subject)]?.contains(certificate) ?? false
    }

    mutating func append(contentsOf certificates: some Sequence<Certificate>) {
        for certificate in certificates {
            added[CanonicalName(certificate.subject), default: []].append(certificate)
        }
    }

    static func == (one: Self, other: Self) -> Bool {
        one.budget === other.budget && one.index.certificates == other.index.certificates && one.added == other.added
    }

    func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(budget)) }
}
