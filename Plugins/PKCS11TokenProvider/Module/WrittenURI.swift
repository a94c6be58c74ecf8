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

    /// The names of the path's attributes. One that is empty ends what p11-kit reads of the path.
    private var names: [String] {
        let attributes = path.drop { $0 != ":" }.dropFirst()
        guard !attributes.isEmpty else { return [] }
        return attributes.split(separator: ";", omittingEmptySubsequences: false).map { attribute in
            String(attribute.prefix { $0 != "=" })
        }
    }

    /// The names of the query's attributes.
    private var queryNames: [String] {
        text.drop { $0 != "?" }.dropFirst().split { "&;".contains($0) }.map { attribute in
            String(attribute.prefix { $0 != "=" })
        }
    }

    /// What stands behind the `?`, and what vendors begin theirs with (RFC 7512, sections 2.3 and 2.4).
    private static let knownInQuery: Set<String> = ["pin-source", "pin-value", "module-name", "module-path"]

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
                "A PKCS#11 URI has a PIN before its '?'; put it into a file that only you can read, and name that with "
                    + "'pin-source'.")
        }
        guard !names.contains("") else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(path.withVisibleControls)' has an empty attribute, behind which nothing would be read; "
                    + "remove the ';' that is too many.")
        }
        // Somewhere else they would mean nothing, and any token would match.
        if let name = queryNames.first(where: { !Self.knownInQuery.contains($0) && !$0.hasPrefix("x-") }) {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(path.withVisibleControls)' has '\(name.withVisibleControls)' behind its '?', where that "
                    + "means nothing; there may be \(Self.knownInQuery.sorted().joined(separator: ", ")).")
        }
        var seen = Set<String>()
        for name in names where !seen.insert(name).inserted {
            throw CertificateProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(path.withVisibleControls)' has '\(name.withVisibleControls)' more than once, of which "
                    + "only one could count (RFC 7512, section 2.3); remove the others.")
        }
    }
}
