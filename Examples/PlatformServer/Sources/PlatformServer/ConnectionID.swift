import Foundation
import Hummingbird

/// The id of an application connection. It appears in URLs, headers and cookies, and needs no escaping there.
struct ConnectionID: Hashable, Sendable, CustomStringConvertible {
    static let fieldName = "X-SMP-APPCID"
    static let maximumLength = 128

    let description: String

    /// - Returns: nil if the text has other characters than ASCII letters, digits, `.`, `_` and `-`, or a wrong length.
    init?(_ text: some StringProtocol) {
        guard (1...Self.maximumLength).contains(text.utf8.count) else { return nil }
        let isAllowed = text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"), UInt8(ascii: "-"):
                true
            default: false
            }
        }
        guard isAllowed else { return nil }
        description = String(text)
    }

    private init(_ uuid: UUID) { description = uuid.uuidString.lowercased() }

    static func random() -> Self { Self(UUID()) }
}

extension Request {
    /// The connection id in the header or the cookie `X-SMP-APPCID`; nil if there is neither.
    /// - Throws: 400 if the id is malformed, or if header and cookie differ.
    var connectionID: ConnectionID? {
        get throws {
            let header = headers[ConnectionID.fieldName]
            let cookie = cookies[ConnectionID.fieldName]?.value
            guard let text = header ?? cookie else { return nil }
            guard header == nil || cookie == nil || header == cookie else {
                throw HTTPError(.badRequest, message: "The header X-SMP-APPCID and the cookie differ.")
            }
            guard let id = ConnectionID(text) else {
                throw HTTPError(
                    .badRequest,
                    message: "X-SMP-APPCID has at most 128 characters: ASCII letters, digits, '.', '_' and '-'.")
            }
            return id
        }
    }

    /// The connection id that every request after the registration has.
    /// - Throws: 403 without one.
    var requiredConnectionID: ConnectionID {
        get throws {
            guard let id = try connectionID else {
                throw HTTPError(.forbidden, message: "The connection id is missing. Send it as X-SMP-APPCID.")
            }
            return id
        }
    }
}
