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
    }

    /// Reads the lists of each file. Blocks on the file system.
    ///
    /// - Throws: `fileNotFound`, `configurationInvalid`, `malformedData`.
    package func contents() throws(CertificateProviderError) -> [(file: String, lists: [Entry])] {
        try FileGroup(path).files().map { file throws(CertificateProviderError) in
            let lists = try RevocationCheck.read(file).map { list in
                Entry(
                    issuer: DisplayText.name(derEncoded: list.issuerDER), nextUpdate: list.nextUpdate,
                    thisUpdate: list.thisUpdate,
                    count: list.count,
                    isPartial: list.scope == .partial)
            }
            return (file, lists)
        }
    }

    /// Returns those of the CAs of which there is no complete list that they have signed. Blocks and throws as ``contents()``.
    package func authoritiesWithoutList(
        _ authorities: [X509Certificate]
    ) throws(CertificateProviderError) -> [X509Certificate] {
        let check = try RevocationCheck(reading: self)
        return authorities.filter { $0.isAuthority && !check.hasList(of: $0) }
    }
}

/// Revocation lists that have been read.
struct RevocationCheck: Sendable {
    /// By issuer, the latest first.
    private let lists: [CanonicalName?: [RevocationList]]
    private let isLenient: Bool
    private let path: String

    /// Reads the lists. Blocks on the file system.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, or has no list; `malformedData`
    ///   for a damaged list.
    init(reading configured: RevocationLists) throws(CertificateProviderError) {
        var lists: [RevocationList] = []
        for file in try FileGroup(configured.path).files() { lists += try Self.read(file) }
        self.lists = Dictionary(grouping: lists, by: { CanonicalName(derEncoded: $0.issuerDER) }).mapValues {
            $0.sorted {
                ($0.thisUpdate, $0.nextUpdate ?? .distantFuture) > ($1.thisUpdate, $1.nextUpdate ?? .distantFuture)
            }
        }
        (isLenient, path) = (configured.isLenient, configured.path)
    }

    /// The end of the list that ends first; `nil` if none says when.
    var firstEnd: Date? { lists.values.compactMap { $0.first?.nextUpdate }.min() }

    fileprivate static func read(_ file: String) throws(CertificateProviderError) -> [RevocationList] {
        let bytes: [UInt8]
        do throws(RegularFile.Failure) {
            bytes = try RegularFile.read(file, atMost: RevocationList.maximumFileSize)
        } catch {
            throw CertificateProviderError(
                error.isMissing ? .fileNotFound : .configurationInvalid,
                "The revocation list \(file.shellQuoted) cannot be used: \(error).")
        }
        // A text begins with no such octets.
        let ders =
            bytes.starts(with: [0x30]) && bytes.dropFirst().first ?? 0 >= 0x80
            ? [(bytes, nil)] : try blocks(bytes, file)
        let library = OpenSSLLibrary()
        let lists = try ders.map { der, line throws(CertificateProviderError) in
            do throws(OpenSSLError) { return try RevocationList(der, in: library) } catch {
                let place = line.map { " (line \($0))" } ?? ""
                throw CertificateProviderError(
                    .malformedData,
                    "A revocation list in \(file.shellQuoted)\(place) is damaged (\(error)); replace it.",
                    underlying: error)
            }
        }
        guard !lists.isEmpty else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The file \(file.shellQuoted) holds no revocation list, in PEM (X509 CRL) or DER; replace it.")
        }
        return lists
    }

    /// The lists of a PEM text, and their lines.
    private static func blocks(_ text: [UInt8], _ file: String) throws(CertificateProviderError) -> [([UInt8], Int?)] {
        try PEMFile(text, named: file.withVisibleControls).blocks.filter { $0.label == "X509 CRL" }
            .map { ($0.bytes, $0.line) }
    }

    /// Checks each certificate of a verified path, but the trust anchor, in the latest list of its issuer.
    ///
    /// A list counts if its issuer has signed it, if it covers all certificates of this kind, and if it has begun: the latest one. Others
    /// that are not older revoke as well: those of the same second, those that cover a part, and those that have not begun, perhaps
    /// since this host's clock is wrong.
    func check(
        _ path: [X509Certificate], as role: PeerVerifier.Role, at date: Date
    ) throws(PeerRefusal) {
        for (certificate, issuer) in zip(path, path.dropFirst()) {
            let signed = (lists[issuer.subjectName] ?? []).filter { $0.isSigned(by: issuer) }
            let covering = signed.filter { covers($0, certificate) }
            let counting = covering.first { $0.thisUpdate <= date }
            let revoking = signed.first { list in
                (list.scope == .partial || covers(list, certificate))
                    && list.thisUpdate >= counting?.thisUpdate ?? .distantPast
                    && !list.isIndirect && list.revokes(certificate.serialNumber)
            }
            if let revoking {
                throw PeerRefusal(
                    .revoked, role,
                    "'\(certificate.subject)' (serial number \(certificate.serialNumberText)) is revoked, by the list of "
                        + "'\(issuer.subject)' of \(revoking.thisUpdate.formatted(.iso8601))")
            }
            if !isLenient, let problem = problem(of: covering, issuer: issuer, at: date) {
                throw PeerRefusal(.unknownRevocation, role, problem)
            }
        }
    }

    /// Returns why the peers of a CA are refused, as a clause for a message; `nil` if one of its lists counts.
    ///
    /// - Parameter covering: The lists that the CA has signed, of all certificates of a kind; the latest first.
    private func problem(of covering: [RevocationList], issuer: X509Certificate, at date: Date) -> String? {
        let subject = issuer.subject
        if let list = covering.first(where: { $0.thisUpdate <= date }) {
            return list.nextUpdate.flatMap { end in
                end < date
                    ? "the revocation list of '\(subject)' is overdue since \(end.formatted(.iso8601)); replace it in \(path.shellQuoted)"
                    : nil
            }
        }
        if let list = covering.last {
            return
                "the revocation list of '\(subject)' begins at \(list.thisUpdate.formatted(.iso8601)); check this host's clock"
        }
        return
            "there is no revocation list of '\(subject)' in \(path.shellQuoted) that it has signed; add its current, complete list"
    }

    fileprivate func hasList(of issuer: X509Certificate) -> Bool {
        lists[issuer.subjectName]?.contains { $0.scope != .partial && $0.isSigned(by: issuer) } ?? false
    }

    private func covers(_ list: RevocationList, _ certificate: X509Certificate) -> Bool {
        switch list.scope {
        case .all: true
        case .leaves: !certificate.isAuthority
        case .authorities: certificate.isAuthority
        case .partial: false
        }
    }
}
