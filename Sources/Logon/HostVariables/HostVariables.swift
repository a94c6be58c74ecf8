import CertificateProviding

/// The variables of property files that say something of the host: `%{host}`, `%{fqdn}`, `%{machine-id}`, `%{env:NAME}` and
/// `%{file:PATH}`.
///
/// Each is one atom: quoted for the kind of the parameter, or an error. A host's name can come from the network, and must not add a name
/// to a certificate.
struct HostVariables: Sendable {
    /// Why a value cannot be used: the end of a sentence about a key, without a period. Never has the value.
    struct Problem: Error {
        let reason: String
    }

    let host: HostFacts

    /// The kinds of parameters that take variables, each with its quoting.
    private static let quotings: [ParameterDescriptor.Kind: @Sendable (String) -> String?] = [
        .distinguishedName: distinguishedName, .names: name, .serverURL: pathSegment,
    ]

    /// Returns a value with its variables replaced, and `%` for `%%`.
    func expand(_ text: String, as kind: ParameterDescriptor.Kind) throws(Problem) -> String {
        var (result, rest) = ("", text.unicodeScalars[...])
        while let percent = rest.firstIndex(of: "%") {
            result.unicodeScalars += rest[..<percent]
            rest = rest[rest.index(after: percent)...]
            switch rest.first {
            case "%":
                result += "%"
                rest.removeFirst()
            case "{":
                let column = text.unicodeScalars.distance(from: text.startIndex, to: percent) + 1
                do throws(Problem) { result += try variable(&rest, kind) } catch {
                    throw Problem(reason: "\(error.reason), in column \(column) of its value")
                }
            default: result += "%"
            }
        }
        result.unicodeScalars += rest
        return result
    }

    /// Takes a variable, which begins with a brace, off a text.
    private func variable(
        _ rest: inout Substring.UnicodeScalarView, _ kind: ParameterDescriptor.Kind
    ) throws(Problem) -> String {
        guard let quoting = Self.quotings[kind] else {
            throw Problem(reason: "takes no host variable; write %%{ for %{")
        }
        guard let end = rest.firstIndex(of: "}") else { throw Problem(reason: "has a variable without its }") }
        let name = String(rest[rest.index(after: rest.startIndex)..<end])
        rest = rest[rest.index(after: end)...]
        guard let value = try host.value(of: name) else {
            throw Problem(
                reason: "has an unknown variable; there are "
                    + "%{host}, %{fqdn}, %{machine-id}, %{env:NAME} and %{file:PATH}")
        }
        guard !value.isEmpty else { throw Problem(reason: "has a variable that is empty") }
        guard value.utf8.count <= HostFacts.maximumSize else {
            throw Problem(reason: "has a variable with more than \(HostFacts.maximumSize) bytes")
        }
        guard !value.unicodeScalars.contains(where: \.properties.isControlOrSeparator) else {
            throw Problem(reason: "has a variable with a control character, or with several lines")
        }
        guard let quoted = quoting(value) else {
            throw Problem(reason: "has a variable with a character that a value of the kind \(kind) cannot have")
        }
        return quoted
    }

    /// In a value of a distinguished name (RFC 4514, section 2.4).
    @Sendable private static func distinguishedName(_ value: String) -> String? {
        value.unicodeScalars.map { scalar in
            #" ,+"\<>;=#"#.unicodeScalars.contains(scalar)
                ? "\\" + String(scalar.value, radix: 16, uppercase: true) : String(scalar)
        }.joined()
    }

    /// In a list of names. The syntax of some kinds of names has no quoting, so that a special character is refused.
    @Sendable private static func name(_ value: String) -> String? {
        value.utf8.allSatisfy { ByteText.isUnreserved($0) && $0 != UInt8(ascii: "~") || ":@".utf8.contains($0) }
            ? value : nil
    }

    /// In a URL (RFC 3986, section 2.1). A segment of dots would be another path.
    @Sendable private static func pathSegment(_ value: String) -> String? {
        guard ![".", ".."].contains(value) else { return nil }
        return ByteText.percentEncoded(value.utf8)
    }
}

extension Unicode.Scalar.Properties {
    fileprivate var isControlOrSeparator: Bool {
        [.control, .format, .lineSeparator, .paragraphSeparator].contains(generalCategory)
    }
}
