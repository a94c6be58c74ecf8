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
        xmlns:m="\(metadata)">\
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

    /// Whether a response has an error message of OData, which no gateway sends in the server's place.
    static func isError(_ response: HTTPResponse) -> Bool {
        let body = String(decoding: response.body, as: UTF8.self)
        return body.contains(metadata) && text(of: "error", in: body) != nil
    }

    private static let metadata = "http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"

    /// Returns what the server demands of passcodes: the properties that begin with `PasswordPolicy`. `nil` for nothing, and if it
    /// says that its policy is off. A property without a value demands nothing.
    ///
    /// - Throws: `protocolError` for a demand that certprov cannot read, or that no passcode meets.
    static func demands(
        in response: HTTPResponse, of server: ServerURL
    ) throws(ProviderError) -> PasscodeDemands? {
        let policy = PolicyReader(body: String(decoding: response.body, as: UTF8.self), server: server)
        guard try policy.flag("Enabled") != false else { return nil }
        var demands = PasscodeDemands()
        demands.minimumLength = try policy.number("MinLength", atMost: PasscodePolicy.maximumSize)
        demands.minimumUniqueCharacters = try policy.number("MinUniqueChars", atMost: PasscodePolicy.maximumSize)
        demands.needsDigit = try policy.flag("DigitRequired")
        demands.needsUpperCase = try policy.flag("UpperRequired")
        demands.needsLowerCase = try policy.flag("LowerRequired")
        demands.needsSpecial = try policy.flag("SpecialRequired")
        // A smaller limit is stricter.
        demands.validDays = try policy.number("ExpiresInNDays").map { min($0, 36500) }
        // With one attempt, a passcode from a source would be the last one, and never be tried.
        demands.maximumAttempts = try policy.number("RetryLimit").map { $0 == 1 ? 2 : min($0, 1_000_000) }
        demands.lockSeconds = try policy.number("LockTimeout").map { min($0, 86400) }
        demands.allowsDefault = try policy.flag("DefaultPasswordAllowed")
        return demands == PasscodeDemands() ? nil : demands
    }

    /// The demands of a server, by name.
    private struct PolicyReader {
        let body: String
        let server: ServerURL

        /// Returns `nil` for one that the server does not make.
        private func text(_ name: String) -> String? {
            ConnectionEntry.text(of: "PasswordPolicy" + name, in: body).flatMap { $0.isEmpty ? nil : $0 }
        }

        func flag(_ name: String) throws(ProviderError) -> Bool? {
            guard let text = text(name) else { return nil }
            guard let flag = Bool(text.lowercased()) else { throw refusal(name, text, "true or false") }
            return flag
        }

        func number(_ name: String, atMost limit: Int = .max) throws(ProviderError) -> Int? {
            guard let text = text(name) else { return nil }
            guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let number = Int(text), number <= limit else {
                throw refusal(name, text, limit == .max ? "a number" : "a number from 0 to \(limit)")
            }
            return number
        }

        private func refusal(_ name: String, _ text: String, _ expected: String) -> ProviderError {
            ProviderError(
                .protocolError,
                "\(server.authority) demands PasswordPolicy\(name) = '\(text.withVisibleControls.prefix(40))' of passcodes, and "
                    + "certprov can meet \(expected); ask its administrator to change the policy.")
        }
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
