import CertificateProviding
import FoundationEssentials
import IdentityStore
import NIOHTTP1
import ProviderTransport

/// The messages about a connection: Atom entries (RFC 4287) with properties of the OData protocol.
enum ConnectionEntry {
    /// The smallest entry that creates a connection.
    static let creation = """
        <?xml version="1.0" encoding="UTF-8"?>
        <entry xmlns="http://www.w3.org/2005/Atom" xmlns:d="http://schemas.microsoft.com/ado/2007/08/dataservices" \
        xmlns:m="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata">\
        <category term="applications.Connection" \
        scheme="http://schemas.microsoft.com/ado/2007/08/dataservices/scheme"/>\
        <content type="application/xml"><m:properties><d:DeviceType m:type="Edm.String">Linux</d:DeviceType>\
        </m:properties></content></entry>

        """
    static let mediaType = "application/atom+xml; charset=UTF-8"
    static let idField = "X-SMP-APPCID"

    /// Returns the connection's id in the answer to its creation: of the cookie, else of the body, else of the location.
    static func id(in response: HTTPResponse) -> ConnectionID? {
        for cookie in response.headers["Set-Cookie"] {
            let pair = cookie.prefix { $0 != ";" }.split(separator: "=", maxSplits: 1)
            if pair.count == 2, String(pair[0]).trimmed.uppercased() == idField {
                let value = String(pair[1]).trimmed
                let unquoted =
                    value.count > 1 && value.hasPrefix("\"") && value.hasSuffix("\"")
                    ? String(value.dropFirst().dropLast()) : value
                if let id = ConnectionID(unquoted) { return id }
            }
        }
        let body = String(decoding: response.body, as: UTF8.self)
        if let value = text(of: "ApplicationConnectionId", in: body), let id = ConnectionID(value) { return id }
        // …/Connections('<id>')
        let parts = (response.headers.first(name: "Location") ?? "").split(
            separator: "'", omittingEmptySubsequences: false)
        guard parts.count == 3, parts[0].hasSuffix("Connections("), parts[2].hasPrefix(")") else { return nil }
        return ConnectionID(String(parts[1]))
    }

    /// Returns what the server demands of passcodes: the properties that begin with `PasswordPolicy`. `nil` for nothing, and if it
    /// says that its policy is off. A value that is not one of the type is left out.
    static func demands(in response: HTTPResponse) -> PasscodeDemands? {
        let body = String(decoding: response.body, as: UTF8.self)
        func text(_ name: String) -> String? { Self.text(of: "PasswordPolicy" + name, in: body) }
        func flag(_ name: String) -> Bool? { text(name).flatMap { Bool($0.lowercased()) } }
        func number(_ name: String, _ range: ClosedRange<Int>) -> Int? {
            text(name).flatMap { Int($0) }.flatMap { range.contains($0) ? $0 : nil }
        }
        guard flag("Enabled") != false else { return nil }
        var demands = PasscodeDemands()
        demands.minimumLength = number("MinLength", 0...1024)
        demands.minimumUniqueCharacters = number("MinUniqueChars", 0...1024)
        demands.needsDigit = flag("DigitRequired")
        demands.needsUpperCase = flag("UpperRequired")
        demands.needsLowerCase = flag("LowerRequired")
        demands.needsSpecial = flag("SpecialRequired")
        demands.validDays = number("ExpiresInNDays", 0...36500)
        // With one attempt, a passcode from a source would be the last one, and never be tried.
        demands.maximumAttempts = number("RetryLimit", 0...1_000_000).map { $0 == 1 ? 2 : $0 }
        demands.lockSeconds = number("LockTimeout", 0...86400)
        demands.allowsDefault = flag("DefaultPasswordAllowed")
        return demands == PasscodeDemands() ? nil : demands
    }

    /// Returns the text of the first element with a local name. A server's namespace prefixes differ; ids need no entities.
    private static func text(of name: String, in body: String) -> String? {
        var rest = body[...]
        while let open = rest.firstIndex(of: "<") {
            guard let close = rest[open...].firstIndex(of: ">") else { return nil }
            let tag = rest[rest.index(after: open)..<close].prefix { !$0.isWhitespace && $0 != "/" }
            rest = rest[rest.index(after: close)...]
            if tag.split(separator: ":").last.map(String.init) == name {
                return String(rest.prefix { $0 != "<" }).trimmed
            }
        }
        return nil
    }
}
