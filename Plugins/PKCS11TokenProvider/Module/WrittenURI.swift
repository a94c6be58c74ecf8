import CertificateProviding

/// A PKCS#11 URI as it is written, before p11-kit reads it: what p11-kit is too kind about.
struct WrittenURI {
    /// Without the white space that p11-kit passes over as well: a name must not look different to it than to us.
    let text: String

    init(_ text: String) {
        var scalars = String.UnicodeScalarView()
        scalars.append(contentsOf: text.unicodeScalars.filter { !Self.isWhiteSpace($0) })
        self.text = String(scalars)
    }

    private static func isWhiteSpace(_ scalar: Unicode.Scalar) -> Bool {
        scalar == " " || (9...13).contains(scalar.value)
    }

    /// What stands before the `?`: never a PIN.
    var path: String { text.split(separator: "?", maxSplits: 1).first.map(String.init) ?? text }

    /// From the `?` on.
    var query: String { String(text.drop { $0 != "?" }) }

    /// The names of the path's attributes. Behind an empty one p11-kit reads no more; the last may be.
    private var names: [String] {
        let attributes = path.drop { $0 != ":" }.dropFirst()
        let names = attributes.split(separator: ";", omittingEmptySubsequences: false).map { attribute in
            String(attribute.prefix { $0 != "=" })
        }
        return names.last == "" ? names.dropLast() : names
    }

    /// The first attribute behind the `?` that belongs before it, where it would mean nothing and any token match.
    private var misplaced: String? {
        let query = text.drop { $0 != "?" }.dropFirst()
        return query.split(separator: "&").lazy.map { String($0.prefix { $0 != "=" }) }.first(
            where: Self.ofPath.contains)
    }

    /// RFC 7512, section 2.3.
    private static let ofPath: Set<String> = [
        "token", "manufacturer", "serial", "model", "library-manufacturer", "library-version", "library-description",
        "object", "type", "id", "slot-description", "slot-id", "slot-manufacturer",
    ]

    /// Whether something behind the `?` looks like where the PIN is, and is not.
    private var hasUnknownPIN: Bool {
        let query = text.drop { $0 != "?" }.dropFirst()
        return query.split(separator: "&").contains { attribute in
            let name = attribute.prefix { $0 != "=" }.lowercased()
            return name.hasPrefix("pin") && !["pin-source", "pin-value", "pinfile"].contains(name)
        }
    }

    /// - Throws: `configurationInvalid`, without showing a PIN.
    func check() throws(CertificateProviderError) {
        // p11-kit takes a PIN there, from which it would get into everything that shows the URI. No attribute that
        // belongs there has a name like these, however it is written.
        let lowercased = path.lowercased()
        guard !names.contains(where: { $0.lowercased().contains("pin") }), !lowercased.contains("pin-value"),
            !lowercased.contains("pinfile")
        else {
            throw CertificateProviderError(
                .configurationInvalid,
                "A PKCS#11 URI has a PIN before its '?'; write the PIN to a file that only you can read, and set "
                    + "'pin-source' to it.")
        }
        guard !names.contains("") else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(DisplayText.visible(path))' has an empty attribute, after which everything would be "
                    + "ignored; remove the extra ';'.")
        }
        // Of what is behind the '?' nothing is shown that may be a part of a PIN.
        if let misplaced {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(DisplayText.visible(path))' has '\(misplaced)' after its '?', where it is ignored; "
                    + "move it before the '?' (RFC 7512, section 2.3).")
        }
        guard !hasUnknownPIN else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(DisplayText.visible(path))' has an attribute after its '?' that begins with 'pin' "
                    + "and is unknown; use 'pin-source'.")
        }
        var seen = Set<String>()
        for name in names where !seen.insert(name).inserted {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(DisplayText.visible(path))' has '\(DisplayText.visible(name))' more than once (RFC "
                    + "7512, section 2.3); remove all but one.")
        }
    }
}
