package import CertificateProviding
package import FoundationEssentials
import OpenSSLSupport

/// The files with the revocation lists of the peers' CAs (RFC 5280, section 5).
public struct RevocationLists: Sendable, Hashable {
    /// A file with one list in DER or any number in PEM, or a directory with such files.
    public var path: String
    /// Whether a peer is accepted although the list of a CA of its chain is missing or overdue. One that is on a list is
    /// refused in any case.
    public var isLenient: Bool

    /// Creates the value. Reads nothing yet.
    public init(path: String, isLenient: Bool = false) { (self.path, self.isLenient) = (path, isLenient) }
}

extension RevocationLists {
    /// A summary of a list, for a person.
    package struct Entry: Sendable {
        /// The issuer by RFC 4514, safe to print on a terminal.
        package let issuer: String
        package let nextUpdate: Date?
        /// The time from which it holds.
        package let thisUpdate: Date
        /// The number of certificates on it.
        package let count: Int
        /// Whether it does not count, since it covers only a part.
        package let isPartial: Bool
        /// Its limits, as the end of the clause "the list covers only …"; `nil` if it covers all certificates.
        package let limit: String?
    }

    /// Lists that have been read, for a person.
    package struct Contents: Sendable {
        package let files: [(file: String, lists: [Entry])]
        private let check: RevocationCheck

        fileprivate init(_ files: [(file: String, lists: [RevocationList])], _ configured: RevocationLists) {
            self.files = files.map { file, lists in
                let entries = lists.map { list in
                    Entry(
                        issuer: DisplayText.name(derEncoded: list.issuerDER), nextUpdate: list.nextUpdate,
                        thisUpdate: list.thisUpdate, count: list.count, isPartial: list.isPartial, limit: list.limit)
                }
                return (file, entries)
            }
            check = RevocationCheck(files.flatMap(\.lists), configured)
        }

        /// Returns those of the CAs of which there is no complete list that they have signed.
        package func authoritiesWithoutList(_ authorities: [X509Certificate]) -> [X509Certificate] {
            authorities.filter { $0.isAuthority && !check.hasList(of: $0) }
        }
    }

    /// Reads the lists of each file. Blocks on the file system.
    ///
    /// - Throws: `fileNotFound`, `configurationInvalid`, `malformedData`.
    package func contents() throws(ProviderError) -> Contents {
        Contents(
            try FileGroup(path).files().map { file throws(ProviderError) in (file, try RevocationCheck.read(file)) },
            self)
    }
}

/// Revocation lists that have been read.
package struct RevocationCheck: Sendable {
    /// Why a path is not accepted.
    package struct Refusal: Error {
        /// Whether a certificate is revoked; else it is not known.
        package let isRevoked: Bool
        /// A clause for a message.
        package let clause: String
    }

    /// By issuer, the latest first.
    private let lists: [CanonicalName?: [RevocationList]]
    private let isLenient: Bool
    private let path: String

    /// Reads the lists. Blocks on the file system.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, or has no list; `malformedData`
    ///   for a damaged list.
    package init(reading configured: RevocationLists) throws(ProviderError) {
        var lists: [RevocationList] = []
        for file in try FileGroup(configured.path).files() { lists += try Self.read(file) }
        self.init(lists, configured)
    }

    fileprivate init(_ lists: [RevocationList], _ configured: RevocationLists) {
        self.lists = Dictionary(grouping: lists, by: { CanonicalName(derEncoded: $0.issuerDER) }).mapValues {
            $0.sorted {
                ($0.thisUpdate, $0.nextUpdate ?? .distantFuture) > ($1.thisUpdate, $1.nextUpdate ?? .distantFuture)
            }
        }
        (isLenient, path) = (configured.isLenient, configured.path)
    }

    /// The end of the list that ends first; `nil` if none says when.
    var firstEnd: Date? { lists.values.compactMap { $0.first?.nextUpdate }.min() }

    fileprivate static func read(_ file: String) throws(ProviderError) -> [RevocationList] {
        let bytes: [UInt8]
        do throws(RegularFile.Failure) {
            bytes = try RegularFile.read(file, atMost: RevocationList.maximumFileSize)
        } catch {
            throw ProviderError(
                error.isMissing ? .fileNotFound : .configurationInvalid,
                "The revocation list \(file.shellQuoted) cannot be used: \(error).")
        }
        // A text begins with no such octets.
        let ders =
            bytes.starts(with: [0x30]) && bytes.dropFirst().first ?? 0 >= 0x80
            ? [(bytes, nil)] : try blocks(bytes, file)
        let library = OpenSSLLibrary()
        let lists = try ders.map { der, line throws(ProviderError) in
            do throws(OpenSSLError) { return try RevocationList(der, in: library) } catch {
                let place = line.map { " (line \($0))" } ?? ""
                throw ProviderError(
                    .malformedData,
                    "A revocation list in \(file.shellQuoted)\(place) is damaged (\(error)); replace it.",
                    underlying: error)
            }
        }
        guard !lists.isEmpty else {
            throw ProviderError(
                .configurationInvalid,
                "The file \(file.shellQuoted) holds no revocation list, in PEM (X509 CRL) or DER; replace it.")
        }
        return lists
    }

    /// The lists of a PEM text, and their lines.
    private static func blocks(_ text: [UInt8], _ file: String) throws(ProviderError) -> [([UInt8], Int?)] {
        try PEMFile(text, named: file.withVisibleControls).blocks.filter { $0.label == "X509 CRL" }
            .map { ($0.bytes, $0.line) }
    }

    /// Checks each certificate of a verified path, but the trust anchor, in the latest list of its issuer.
    ///
    /// A list counts if its issuer has signed it, if it covers the certificate, and if it has begun: the latest one. Others
    /// that are not older revoke as well: those of the same second, those that cover a part, and those that have not begun, perhaps
    /// since this host's clock is wrong.
    package func check(_ path: [X509Certificate], at date: Date) throws(Refusal) {
        for (certificate, issuer) in zip(path, path.dropFirst()) {
            let own = lists[issuer.subjectName] ?? []
            let signed = own.filter { $0.isSigned(by: issuer) }.map {
                (list: $0, coverage: $0.coverage(of: certificate))
            }
            let covering = signed.filter { $0.coverage == .whole }.map(\.list)
            let counting = covering.first { $0.thisUpdate <= date }
            let revoking = signed.first { list, coverage in
                coverage != .none && list.thisUpdate >= counting?.thisUpdate ?? .distantPast
                    && list.revokes(certificate.serialNumber)
            }
            if let revoking {
                throw Refusal(
                    isRevoked: true,
                    clause: "'\(certificate.subject)' (serial number \(certificate.serialNumberText)) is revoked, "
                        + "by the list of '\(issuer.subject)' of \(revoking.list.thisUpdate.formatted(.iso8601))")
            }
            guard !isLenient else { continue }
            if let problem = problem(of: covering, issuer, at: date) {
                throw Refusal(isRevoked: false, clause: problem)
            }
            if covering.isEmpty {
                throw Refusal(
                    isRevoked: false,
                    clause: absence(of: certificate, issuer, signed: signed.map(\.list), all: own))
            }
        }
    }

    /// Returns why the lists of a CA that cover a certificate do not count, as a clause for a message; `nil` if one does, and where
    /// there is none.
    ///
    /// - Parameter covering: The latest first.
    private func problem(of covering: [RevocationList], _ issuer: X509Certificate, at date: Date) -> String? {
        let subject = issuer.subject
        if let list = covering.first(where: { $0.thisUpdate <= date }) {
            return list.nextUpdate.flatMap { end in
                end < date
                    ? "the revocation list of '\(subject)' is overdue since \(end.formatted(.iso8601)); replace it in \(path.shellQuoted)"
                    : nil
            }
        }
        return covering.last.map {
            "the revocation list of '\(subject)' begins at \($0.thisUpdate.formatted(.iso8601)); check this host's clock"
        }
    }

    /// Returns why no list covers a certificate, as a clause for a message.
    ///
    /// - Parameters:
    ///   - signed: The lists that its issuer has signed.
    ///   - all: The lists in the issuer's name.
    private func absence(
        of certificate: X509Certificate, _ issuer: X509Certificate, signed: [RevocationList], all: [RevocationList]
    ) -> String {
        let (subject, place) = (issuer.subject, path.shellQuoted)
        if let list = signed.first {
            return
                "the revocation list of '\(subject)' in \(place) does not cover '\(certificate.subject)': it covers only "
                + "\(list.limit ?? "others"); add the CA's complete list"
        }
        if !all.isEmpty {
            return
                "the revocation list of '\(subject)' in \(place) is not signed by that CA, or the CA must not sign lists, by its key "
                + "usage; add its current, complete list"
        }
        return
            "there is no revocation list of '\(subject)' in \(place); add its current, complete list"
    }

    /// Returns the CAs whose latest list is older here than in `former`, or is missing, each as a clause for a message.
    func regressions(since former: RevocationCheck) -> [String] {
        former.lists.values.compactMap { lists in
            guard let last = lists.first else { return nil }
            let issuer = DisplayText.name(derEncoded: last.issuerDER)
            guard let new = self.lists[CanonicalName(derEncoded: last.issuerDER)]?.first else {
                return "the revocation list of '\(issuer)' of \(last.thisUpdate.formatted(.iso8601)) is missing"
            }
            guard new.thisUpdate < last.thisUpdate else { return nil }
            return
                "the revocation list of '\(issuer)' is of \(new.thisUpdate.formatted(.iso8601)), and the one before it is of "
                + "\(last.thisUpdate.formatted(.iso8601))"
        }.sorted()
    }

    fileprivate func hasList(of issuer: X509Certificate) -> Bool {
        lists[issuer.subjectName]?.contains { !$0.isPartial && $0.isSigned(by: issuer) } ?? false
    }
}
