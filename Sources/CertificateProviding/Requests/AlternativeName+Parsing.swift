extension AlternativeName {
    /// Reads a name in the form of ``description``: `dns:host.example`, `ip:192.0.2.1`, `email:…`, `uri:…`, `upn:…`; and `sid:S-1-5-…`,
    /// which is the URI of ``sid``.
    ///
    /// - Throws: `malformedData`, with the expected form.
    public init(_ text: String) throws(ProviderError) {
        guard let colon = text.firstIndex(of: ":") else {
            throw Self.refusal(text, "write \(Self.prefixes) before it")
        }
        let value = String(text[text.index(after: colon)...])
        switch text[..<colon].lowercased() {
        case "dns": self = .dns(value)
        case "ip":
            guard let octets = value.addressOctets else {
                throw Self.refusal(text, "it is not an IPv4 or IPv6 address")
            }
            self = .ip(octets)
        case "email": self = .email(value)
        case "uri": self = .uri(value)
        case "upn": self = .upn(value)
        case "sid":
            self = .uri(Self.sidPrefix + value)
            guard sid != nil else { throw Self.refusal(text, "a security identifier has the form S-1-5-21-…") }
        default: throw Self.refusal(text, "the kinds are \(Self.prefixes)")
        }
        if let problem { throw Self.refusal(text, problem) }
    }

    /// Reads names that are separated by commas. A name that has a comma itself stands in double quotes; `\"` and `\\`
    /// in them mean `"` and `\`: `"uri:https://a.example/x,y", dns:host.example`.
    ///
    /// - Throws: `malformedData`, which names the member of the list.
    public static func list(_ text: String) throws(ProviderError) -> [AlternativeName] {
        try members(of: text).map { member, isQuoted throws(ProviderError) in
            guard isQuoted || member.contains(":") else {
                throw refusal(
                    member,
                    "write \(prefixes) before it, or put a name that has a comma in double quotes, as in "
                        + "\"uri:https://a.example/x,y\"")
            }
            return try Self(member)
        }
    }

    /// Returns the members of such a list, which need not be alternative names. Empty ones are left out.
    ///
    /// - Throws: `malformedData` for double quotes that are not closed, or something after them.
    package static func members(
        of text: String
    ) throws(ProviderError) -> [(text: String, isQuoted: Bool)] {
        var members: [(text: String, isQuoted: Bool)] = []
        var rest = text[...]
        repeat {
            rest = rest.drop(while: \.isWhitespace)
            if rest.first == "\"" {
                members.append((try quoted(&rest), true))
                continue
            }
            var member = rest.prefix { $0 != "," }
            rest = rest[member.endIndex...]
            while member.last?.isWhitespace == true { member.removeLast() }
            if !member.isEmpty { members.append((String(member), false)) }
        } while rest.popFirst() != nil
        return members
    }

    /// Takes a member in double quotes off the list, up to the comma after it.
    private static func quoted(_ rest: inout Substring) throws(ProviderError) -> String {
        let start = rest
        var value = ""
        rest.removeFirst()
        while let character = rest.popFirst() {
            switch character {
            case "\"":
                rest = rest.drop(while: \.isWhitespace)
                guard rest.isEmpty || rest.first == "," else {
                    throw refusal(value, "a comma is expected after its closing double quote")
                }
                return value
            case "\\":
                guard let next = rest.popFirst(), next == "\"" || next == "\\" else {
                    throw refusal(String(start), "in double quotes, write \\\" for \" and \\\\ for \\")
                }
                value.append(next)
            default: value.append(character)
            }
        }
        throw refusal(String(start), "the closing double quote is missing")
    }

    private static let prefixes = "dns:, ip:, email:, uri:, upn: or sid:"

    private static let sidPrefix = "tag:microsoft.com,2022-09-14:sid:"

    /// The security identifier in a directory that the name is, such as `S-1-5-21-1-2-3-1001`: a URI of the scheme `tag` (RFC 4151).
    /// A request with it has the extension 1.3.6.1.4.1.311.25.2 as well, by which Windows' own CA names it.
    public var sid: String? {
        guard case .uri(let uri) = self, uri.hasPrefix(Self.sidPrefix) else { return nil }
        let sid = uri.dropFirst(Self.sidPrefix.count)
        return sid.wholeMatch(of: /S-1-[0-9]{1,14}(-[0-9]{1,10}){1,15}/) == nil ? nil : String(sid)
    }

    static func refusal(_ text: String, _ reason: String) -> ProviderError {
        ProviderError(
            .malformedData, "'\(text.withVisibleControls)' is not a valid subject alternative name: \(reason).")
    }

    /// Why a request cannot have the name; `nil` if it can.
    var problem: String? {
        switch self {
        case .dns(let name):
            if let problem = Self.problem(ofASCII: name) { return problem }
            let labels = name.split(separator: ".", omittingEmptySubsequences: false)
            guard name.utf8.count <= 253, labels.allSatisfy({ (1...63).contains($0.utf8.count) }) else {
                return "a host name must have labels of 1 to 63 characters, separated by dots"
            }
            return name.contains(",") ? "a host name has no comma; give each name by itself" : nil
        case .ip(let octets): return [4, 16].contains(octets.count) ? nil : "it is not an IPv4 or IPv6 address"
        case .email(let address):
            return Self.problem(ofASCII: address)
                ?? (Self.isUserAtHost(address) ? nil : "it is not an email address")
        case .uri(let uri):
            if let problem = Self.problem(ofASCII: uri) { return problem }
            guard let scheme = uri.firstIndex(of: ":"), scheme != uri.startIndex else { return "it has no scheme" }
            return uri.contains("\"")
                ? "a URI has no double quotes; those around a name stand before its 'uri:'" : nil
        case .upn(let name):
            return Self.isUserAtHost(name) && !name.unicodeScalars.contains { $0 == " " || $0.isControl }
                ? nil : "a UPN has the form alice@example.com"
        case .directory, .registeredID, .other, .encoded: return nil
        }
    }

    /// Most kinds are IA5Strings (RFC 5280, section 4.2.1.6): international names go in their ASCII forms.
    private static func problem(ofASCII text: String) -> String? {
        !text.isEmpty && text.utf8.allSatisfy { (0x21...0x7e).contains($0) }
            ? nil : "it must be ASCII without blanks, and not empty; use the ASCII form of international names"
    }

    private static func isUserAtHost(_ text: String) -> Bool {
        let parts = text.split(separator: "@", omittingEmptySubsequences: false)
        return parts.count == 2 && parts.allSatisfy { !$0.isEmpty }
    }
}
