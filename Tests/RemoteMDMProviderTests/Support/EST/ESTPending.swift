import Foundation
import SwiftASN1
import X509

/// Requests that an officer would have to approve first: 202 until they have been asked for often enough.
struct ESTPending {
    /// The fields that have to stay the same from one request to the next: all of a CSR but for a challenge password, which is
    /// the connection's.
    private struct Content: Equatable {
        var der: [UInt8]?
        var subject: DistinguishedName
        var attributes: [CertificateSigningRequest.Attribute]

        init(_ csr: CertificateSigningRequest, _ der: [UInt8]) {
            subject = csr.subject
            attributes = csr.attributes.filter { $0.oid != ESTWishes.challengePassword }
            self.der = attributes.count == csr.attributes.count ? der : nil
        }
    }

    private struct Entry {
        var content: Content
        var left: Int
    }

    /// By key.
    private var entries: [String: Entry] = [:]

    /// Whether a request is put off once more.
    mutating func waits(_ csr: CertificateSigningRequest, _ der: [UInt8], key: String, count: Int) -> Bool {
        let content = Content(csr, der)
        var entry = entries[key].flatMap { $0.content == content ? $0 : nil } ?? Entry(content: content, left: count)
        defer { entries[key] = entry }
        guard entry.left > 0 else { return false }
        entry.left -= 1
        return true
    }

    /// The value of Retry-After: seconds, an HTTP-date that many seconds ahead, or `nil` for no such field.
    static func retryAfter(_ text: String, now: Date = Date()) -> String? {
        let parts = text.split(separator: "-")
        guard parts.first == "date", parts.count == 2, let seconds = TimeInterval(parts[1]) else {
            return text == "absent" ? nil : text
        }
        let formatter = DateFormatter()
        formatter.locale = Locale(identifier: "en_US_POSIX")
        formatter.timeZone = .gmt
        formatter.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return formatter.string(from: now + seconds)
    }
}
