internal import COpenSSL
package import CertificateProviding
package import FoundationEssentials
import Synchronization

/// A certificate revocation list (RFC 5280, section 5): an `X509_CRL`.
///
/// Safe to share between threads: OpenSSL sorts the entries at the first lookup, which ``init(_:in:)`` does.
package final class RevocationList: Sendable {
    /// Which certificates of its issuer the list covers, but for its distribution points.
    private enum Scope: Hashable {
        /// All.
        case all
        /// Those that are not a CA's (`onlyContainsUserCerts`).
        case leaves
        /// Those of CAs (`onlyContainsCACerts`).
        case authorities
        /// Others than can be told here, as the text says (RFC 5280, sections 5.2 and 5.3).
        case partial(String)
    }

    /// How far a list covers a certificate of its issuer.
    package enum Coverage: Sendable {
        /// A certificate that is not on the list is not revoked.
        case whole
        /// Only a certificate that is on the list is known to be revoked or not.
        case part
        /// It is a list of certificates of another kind.
        case none
    }

    /// The issuer as a DER `Name`.
    package let issuerDER: [UInt8]
    /// The time from which the list holds.
    package let thisUpdate: Date
    /// The time by which there is another one; `nil` if the list does not say.
    package let nextUpdate: Date?
    private let scope: Scope
    /// The names of the distribution point that the list is for; `nil` if it is for none (RFC 5280, section 5.2.5).
    private let distributionPoint: [AlternativeName]?
    /// The number of entries.
    package let count: Int

    nonisolated(unsafe) private let pointer: OpaquePointer
    private let library: OpenSSLLibrary
    /// The result for the last key that was asked for. A list has one issuer, and that one key.
    private let verified = Mutex<(key: [UInt8], isValid: Bool)?>(nil)

    /// The maximum size of a file, in bytes. The largest lists of public CAs have some tens of millions.
    package static let maximumFileSize = 128 << 20

    /// Reads a DER list. Trailing data is an error.
    package convenience init(_ der: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        OpenSSLError.clear()
        var list = X509_CRL_new_ex(library.context, nil)
        let isWhole = der.withUnsafeBufferPointer { buffer in
            var position = buffer.baseAddress
            // On failure, it frees the list and leaves nil.
            return d2i_X509_CRL(&list, &position, buffer.count) != nil
                && position == buffer.baseAddress.map { $0 + buffer.count }
        }
        guard let list else { throw OpenSSLError("d2i_X509_CRL") }
        try self.init(adopting: list, in: library)
        guard isWhole else { throw OpenSSLError("d2i_X509_CRL", refusing: "trailing data") }
    }

    private init(adopting pointer: OpaquePointer, in library: OpenSSLLibrary) throws(OpenSSLError) {
        (self.pointer, self.library) = (pointer, library)
        do throws(OpenSSLError) {
            let issuer = X509_CRL_get_issuer(pointer)
            issuerDER = try OpenSSLLibrary.encode("i2d_X509_NAME") { i2d_X509_NAME(issuer, $0) }
            guard let start = OpenSSLLibrary.date(X509_CRL_get0_lastUpdate(pointer)) else {
                throw OpenSSLError("ASN1_TIME_to_tm", refusing: "thisUpdate is malformed")
            }
            thisUpdate = start
            if let next = X509_CRL_get0_nextUpdate(pointer) {
                guard let end = OpenSSLLibrary.date(next) else {
                    throw OpenSSLError("ASN1_TIME_to_tm", refusing: "nextUpdate is malformed")
                }
                nextUpdate = end
            } else {
                nextUpdate = nil
            }
            (scope, distributionPoint) = Self.scope(of: pointer)
            count = max(0, Int(OPENSSL_sk_num(X509_CRL_get_REVOKED(pointer))))
            // Sorts the entries now.
            _ = Self.find([1], in: pointer)
        } catch {
            X509_CRL_free(pointer)
            throw error
        }
    }

    deinit { X509_CRL_free(pointer) }

    /// Whether `issuer` has signed the list, and may sign lists. The names are not compared.
    package func isSigned(by issuer: X509Certificate) -> Bool {
        guard issuer.permitsRevocationLists else { return false }
        let key = issuer.publicKey.derRepresentation
        if let verified = verified.withLock(\.self), verified.key == key { return verified.isValid }
        let isValid = verify(issuer)
        verified.withLock { $0 = (key, isValid) }
        return isValid
    }

    /// Whether the list is signed with SHA-1 or weaker, which ``isSigned(by:)`` accepts.
    package var isSignedWeakly: Bool {
        var digest = NID_undef
        OBJ_find_sigid_algs(X509_CRL_get_signature_nid(pointer), &digest, nil)
        return [NID_md5, NID_sha1].contains(digest)
    }

    private func verify(_ issuer: X509Certificate) -> Bool {
        guard let certificate = try? CertificateHandle(issuer.derRepresentation, in: library) else { return false }
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        return withExtendedLifetime(certificate) {
            guard let key = X509_get0_pubkey(certificate.pointer) else { return false }
            return X509_CRL_verify(pointer, key) == 1
        }
    }

    /// Whether the list has an entry for a serial number of its own issuer: big-endian two's complement, as in the certificate. One that
    /// takes a hold back (`removeFromCRL`) does not count, nor does that of another issuer, which an indirect list has.
    package func revokes(_ serialNumber: [UInt8]) -> Bool { Self.find(serialNumber, in: pointer) }

    private static func find(_ serialNumber: [UInt8], in pointer: OpaquePointer) -> Bool {
        guard (1..<128).contains(serialNumber.count) else { return false }
        let der = [0x02, UInt8(serialNumber.count)] + serialNumber
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        var position: UnsafePointer<UInt8>?
        return der.withUnsafeBufferPointer { buffer in
            position = buffer.baseAddress
            guard let number = d2i_ASN1_INTEGER(nil, &position, buffer.count) else { return false }
            defer { ASN1_INTEGER_free(number) }
            var entry: OpaquePointer?
            return X509_CRL_get0_by_serial(pointer, &entry, number) == 1
        }
    }

    /// How far the list covers a certificate that its issuer has issued.
    ///
    /// A list for a distribution point covers the certificates that name this point, without `reasons` and `cRLIssuer` (RFC 5280,
    /// section 6.3.3, b 2).
    package func coverage(of certificate: X509Certificate) -> Coverage {
        let isOfKind =
            switch scope {
            case .all: true
            case .leaves: !certificate.isAuthority
            case .authorities: certificate.isAuthority
            case .partial: false
            }
        if let distributionPoint {
            let own = Self.distributionPoints(of: certificate, in: library)
            return isOfKind && own.contains { distributionPoint.contains($0) } ? .whole : .part
        }
        if case .partial = scope { return .part }
        return isOfKind ? .whole : .none
    }

    /// Whether the list covers no certificate whole.
    package var isPartial: Bool { if case .partial = scope { true } else { false } }

    /// The limits of the list, as the end of the clause "the list covers only …"; `nil` if it covers all certificates.
    package var limit: String? {
        let kind: String? =
            switch scope {
            case .all: nil
            case .leaves: "certificates that are not a CA's"
            case .authorities: "certificates of CAs"
            case .partial(let text): text
            }
        guard let distributionPoint else { return kind }
        let names = distributionPoint.map(\.description).joined(separator: ", ")
        return (kind.map { "\($0), of " } ?? "certificates of ")
            + "the distribution point \(names.isEmpty ? "with a relative name" : names)"
    }

    private static func scope(of pointer: OpaquePointer) -> (Scope, [AlternativeName]?) {
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        let unknown = Scope.partial("what an unknown critical extension says")
        for index in 0..<max(0, X509_CRL_get_ext_count(pointer)) {
            let one = X509_CRL_get_ext(pointer, index)
            let type = OBJ_obj2nid(X509_EXTENSION_get_object(one))
            if type == NID_delta_crl { return (.partial("changes of another list, as a delta list"), nil) }
            if X509_EXTENSION_get_critical(one) != 0, type != NID_issuing_distribution_point { return (unknown, nil) }
        }
        if hasEntry(pointer, where: { X509_REVOKED_get_ext_by_critical($0, 1, -1) >= 0 }) {
            return (.partial("what an unknown critical extension of an entry says"), nil)
        }
        // The entries behind it may be of that issuer too.
        if hasEntry(pointer, where: { X509_REVOKED_get_ext_by_NID($0, NID_certificate_issuer, -1) >= 0 }) {
            return (.partial("certificates of several issuers"), nil)
        }
        guard X509_CRL_get_ext_by_NID(pointer, NID_issuing_distribution_point, -1) >= 0 else { return (.all, nil) }
        guard let found = X509_CRL_get_ext_d2i(pointer, NID_issuing_distribution_point, nil, nil) else {
            return (.partial("what a damaged extension says"), nil)
        }
        let point = found.assumingMemoryBound(to: ISSUING_DIST_POINT.self)
        defer { ISSUING_DIST_POINT_free(point) }
        let value = point.pointee
        let names = value.distpoint.map { Self.names(of: $0) }
        if value.onlysomereasons != nil { return (.partial("some reasons for a revocation"), names) }
        if value.indirectCRL > 0 { return (.partial("certificates of several issuers, as an indirect list"), names) }
        if value.onlyattr > 0 { return (.partial("attribute certificates"), names) }
        switch (value.onlyuser > 0, value.onlyCA > 0) {
        case (false, false): return (.all, names)
        case (true, false): return (.leaves, names)
        case (false, true): return (.authorities, names)
        case (true, true): return (.partial("certificates that are both of CAs and not"), names)
        }
    }

    /// The full names of a distribution point; none for one that is relative to an issuer.
    private static func names(of point: UnsafeMutablePointer<DIST_POINT_NAME>) -> [AlternativeName] {
        guard point.pointee.type == 0 else { return [] }
        let list = point.pointee.name.fullname
        guard let der = try? OpenSSLLibrary.encode("i2d_GENERAL_NAMES", { i2d_GENERAL_NAMES(list, $0) }) else {
            return []
        }
        return AlternativeName.names(derEncoded: der[...]).map(\.normalized)
    }

    /// The names of a certificate's distribution points that cover all reasons and have its issuer's lists, normalized.
    package static func distributionPoints(
        of certificate: X509Certificate, in library: OpenSSLLibrary
    ) -> [AlternativeName] {
        guard let handle = try? CertificateHandle(certificate.derRepresentation, in: library) else { return [] }
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        return withExtendedLifetime(handle) {
            guard let found = X509_get_ext_d2i(handle.pointer, NID_crl_distribution_points, nil, nil) else { return [] }
            let points = OpaquePointer(found)
            defer { CRL_DIST_POINTS_free(points) }
            return (0..<max(0, OPENSSL_sk_num(points))).flatMap { index -> [AlternativeName] in
                guard let item = OPENSSL_sk_value(points, index) else { return [] }
                let point = item.assumingMemoryBound(to: DIST_POINT.self).pointee
                guard point.reasons == nil, point.CRLissuer == nil, let name = point.distpoint else { return [] }
                return names(of: name)
            }
        }
    }

    private static func hasEntry(_ pointer: OpaquePointer, where condition: (OpaquePointer) -> Bool) -> Bool {
        let entries = X509_CRL_get_REVOKED(pointer)
        return (0..<max(0, OPENSSL_sk_num(entries))).contains { index in
            OPENSSL_sk_value(entries, index).map { condition(OpaquePointer($0)) } ?? false
        }
    }
}
