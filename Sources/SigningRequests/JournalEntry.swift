import CertificateProviding
package import FoundationEssentials

/// A line of the journal: a request that passed step 11, and what became of it. It has no document, key, PIN or client key.
package struct JournalEntry: Sendable, Equatable {
    /// The outcome of a request: `signed`, `interrupted`, or the code of the reply that refused it.
    package struct Outcome: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        package let rawValue: String
        package init(rawValue: String) { self.rawValue = rawValue }
        package var description: String { rawValue }

        /// The reply has the signature.
        package static let signed = Self(rawValue: "signed")
        /// The process ended, or lost its disk, while it signed. No reply has left.
        package static let interrupted = Self(rawValue: "interrupted")

        /// The request was refused with this code.
        package init(_ code: ResponseCode) { rawValue = code.rawValue }
    }

    /// The approver of a request that a rule approved.
    package static let unattended = "unattended"

    /// When it was written, in whole seconds.
    package var time: Date
    /// The number of the client in the registry.
    package var client: Int
    /// The id that the request gives itself: untrusted text, cut to 128 bytes.
    package var requestID: String?
    package var operation: SigningOperation
    /// The SHA-256 of the data, in hexadecimal digits.
    package var digest: String
    package var outcome: Outcome
    /// The prompt that got the approval, ``unattended``, or `nil` for a request that was not approved.
    package var approver: String?
    /// The SHA-256 of the certificate that signed or would have.
    package var fingerprint: String?
    /// The sender of the request, as far as the host knows: a hint, cut to 256 bytes.
    package var peer: String
    /// How many requests of the client before this one have no line: there were too many in a minute.
    package var omitted = 0

    /// - Parameter time: Without its fraction of a second.
    package init(
        time: Date, client: Int, requestID: String?, operation: SigningOperation, digest: String, outcome: Outcome,
        approver: String?, fingerprint: String?, peer: String
    ) {
        self.time = Date(timeIntervalSince1970: time.timeIntervalSince1970.rounded(.down))
        self.client = client
        self.requestID = requestID?.cut(toBytes: 128)
        self.operation = operation
        self.digest = digest
        self.outcome = outcome
        self.approver = approver
        self.fingerprint = fingerprint
        self.peer = peer.cut(toBytes: 256)
    }

    /// The most bytes that a line has, with its end. In JSON a byte has at most six.
    static let maximumSize = 4096
}

extension JournalEntry: Codable {
    private enum Key: String, CodingKey {
        case time, client, requestID, operation, digest, outcome, approver, fingerprint, peer, omitted
    }

    /// Each line has every key, but `omitted` only where it is not zero.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode(Self.text(of: time), forKey: .time)
        try container.encode(client, forKey: .client)
        try container.encode(requestID, forKey: .requestID)
        try container.encode(operation, forKey: .operation)
        try container.encode(digest, forKey: .digest)
        try container.encode(outcome.rawValue, forKey: .outcome)
        try container.encode(approver, forKey: .approver)
        try container.encode(fingerprint, forKey: .fingerprint)
        try container.encode(peer, forKey: .peer)
        if omitted > 0 { try container.encode(omitted, forKey: .omitted) }
    }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: Key.self)
        guard let time = Self.time(of: try container.decode(String.self, forKey: .time)) else {
            throw DecodingError.dataCorruptedError(forKey: .time, in: container, debugDescription: "no time")
        }
        self.init(
            time: time, client: try container.decode(Int.self, forKey: .client),
            requestID: try container.decode(String?.self, forKey: .requestID),
            operation: try container.decode(SigningOperation.self, forKey: .operation),
            digest: try container.decode(String.self, forKey: .digest),
            outcome: Outcome(rawValue: try container.decode(String.self, forKey: .outcome)),
            approver: try container.decode(String?.self, forKey: .approver),
            fingerprint: try container.decode(String?.self, forKey: .fingerprint),
            peer: try container.decode(String.self, forKey: .peer))
        omitted = try container.decodeIfPresent(Int.self, forKey: .omitted) ?? 0
    }

    /// The line with its end, and where in it the outcome begins.
    ///
    /// - Parameter width: The room for the outcome with its quotation marks: spaces follow it.
    func line(width: Int) throws(ProviderError) -> (bytes: [UInt8], outcome: Int) {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        var bytes: [UInt8]
        do {
            bytes = Array(String(decoding: try encoder.encode(self), as: UTF8.self).withEscapedControls.utf8)
        } catch {
            throw ProviderError(.internal, "A line of the journal cannot be made.", underlying: error)
        }
        // Within a text these quotation marks would have backslashes.
        let key = Array(#""outcome":"#.utf8), value = Self.quoted(outcome)
        guard let start = bytes.firstRange(of: key)?.upperBound, bytes[start...].starts(with: value) else {
            throw ProviderError(.internal, "A line of the journal has no outcome.")
        }
        bytes.insert(contentsOf: [UInt8](repeating: 0x20, count: max(0, width - value.count)), at: start + value.count)
        bytes.append(UInt8(ascii: "\n"))
        guard bytes.count <= Self.maximumSize else {
            throw ProviderError(.internal, "A line of the journal would have \(bytes.count) bytes.")
        }
        return (bytes, start)
    }

    /// The outcome as JSON: codes need no escapes.
    static func quoted(_ outcome: Outcome) -> [UInt8] { Array("\"\(outcome.rawValue)\"".utf8) }

    // MARK: - Times

    /// RFC 3339 in UTC, to the second. All texts have the same length, and the order of their times.
    static func text(of time: Date) -> String {
        // Years of four digits.
        let seconds = min(max(time.timeIntervalSince1970, -62_135_596_800), 253_402_300_799).rounded(.down)
        return Date(timeIntervalSince1970: seconds).formatted(.iso8601)
    }

    /// The time of a text that ``text(of:)`` has made; `nil` for another one.
    static func time(of text: String) -> Date? {
        (try? Date(text, strategy: .iso8601)).flatMap { Self.text(of: $0) == text ? $0 : nil }
    }
}
