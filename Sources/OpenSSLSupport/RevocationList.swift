internal import COpenSSL
package import CertificateProviding
package import FoundationEssentials
import Glibc
import Synchronization

/// A certificate revocation list (RFC 5280, section 5): an `X509_CRL`.
///
/// Safe to share between threads: OpenSSL sorts the entries at the first lookup, which ``init(_:in:)`` does.
package final class RevocationList: Sendable {
    /// Which certificates of its issuer the list covers.
    package enum Scope: Sendable, Hashable {
        /// All.
        case all
        /// Those that are not a CA's (`onlyContainsUserCerts`).
        case leaves
        /// Those of CAs (`onlyContainsCACerts`).
        case authorities
        /// Others than can be told here: a delta list, one for some reasons or one distribution point, an indirect list, or
        /// one with a critical extension that is not known, of the list or of an entry (RFC 5280, sections 5.2 and 5.3).
        case partial
    }

    /// The issuer as a DER `Name`.
    package let issuerDER: [UInt8]
    /// The time from which the list holds.
    package let thisUpdate: Date
    /// The time by which there is another one; `nil` if the list does not say.
    package let nextUpdate: Date?
    package let scope: Scope
    /// Whether entries may be certificates of other issuers (RFC 5280, section 5.3.3).
    package let isIndirect: Bool
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
            guard let start = Self.date(X509_CRL_get0_lastUpdate(pointer)) else {
                throw OpenSSLError("ASN1_TIME_to_tm", refusing: "thisUpdate is malformed")
            }
            thisUpdate = start
            if let next = X509_CRL_get0_nextUpdate(pointer) {
                guard let end = Self.date(next) else {
                    throw OpenSSLError("ASN1_TIME_to_tm", refusing: "nextUpdate is malformed")
                }
                nextUpdate = end
            } else {
                nextUpdate = nil
            }
            scope = Self.scope(of: pointer)
            isIndirect = Self.hasOtherIssuers(pointer)
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

    private func verify(_ issuer: X509Certificate) -> Bool {
        guard let certificate = try? CertificateHandle(issuer.derRepresentation, in: library) else { return false }
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        return withExtendedLifetime(certificate) {
            guard let key = X509_get0_pubkey(certificate.pointer) else { return false }
            return X509_CRL_verify(pointer, key) == 1
        }
    }

    /// Whether the list has an entry for a serial number: big-endian two's complement, as in the certificate. One that takes
    /// a hold back (`removeFromCRL`) does not count.
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

    private static func scope(of pointer: OpaquePointer) -> Scope {
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        for index in 0..<max(0, X509_CRL_get_ext_count(pointer)) {
            let one = X509_CRL_get_ext(pointer, index)
            let type = OBJ_obj2nid(X509_EXTENSION_get_object(one))
            if type == NID_delta_crl { return .partial }
            if X509_EXTENSION_get_critical(one) != 0, type != NID_issuing_distribution_point { return .partial }
        }
        if hasEntry(pointer, where: { X509_REVOKED_get_ext_by_critical($0, 1, -1) >= 0 }) { return .partial }
        guard X509_CRL_get_ext_by_NID(pointer, NID_issuing_distribution_point, -1) >= 0 else { return .all }
        guard let found = X509_CRL_get_ext_d2i(pointer, NID_issuing_distribution_point, nil, nil) else {
            return .partial
        }
        let point = found.assumingMemoryBound(to: ISSUING_DIST_POINT.self)
        defer { ISSUING_DIST_POINT_free(point) }
        let value = point.pointee
        guard value.distpoint == nil, value.onlysomereasons == nil, value.indirectCRL <= 0, value.onlyattr <= 0 else {
            return .partial
        }
        switch (value.onlyuser > 0, value.onlyCA > 0) {
        case (false, false): return .all
        case (true, false): return .leaves
        case (false, true): return .authorities
        case (true, true): return .partial
        }
    }

    private static func hasOtherIssuers(_ pointer: OpaquePointer) -> Bool {
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        if let found = X509_CRL_get_ext_d2i(pointer, NID_issuing_distribution_point, nil, nil) {
            let point = found.assumingMemoryBound(to: ISSUING_DIST_POINT.self)
            defer { ISSUING_DIST_POINT_free(point) }
            if point.pointee.indirectCRL > 0 { return true }
        }
        return hasEntry(pointer) { X509_REVOKED_get_ext_by_NID($0, NID_certificate_issuer, -1) >= 0 }
    }

    private static func hasEntry(_ pointer: OpaquePointer, where condition: (OpaquePointer) -> Bool) -> Bool {
        let entries = X509_CRL_get_REVOKED(pointer)
        return (0..<max(0, OPENSSL_sk_num(entries))).contains { index in
            OPENSSL_sk_value(entries, index).map { condition(OpaquePointer($0)) } ?? false
        }
    }

    private static func date(_ time: UnsafePointer<ASN1_TIME>?) -> Date? {
        var fields = tm()
        guard ASN1_TIME_to_tm(time, &fields) == 1 else { return nil }
        return Date(timeIntervalSince1970: TimeInterval(timegm(&fields)))
    }
}
