import CertificateProviding
import Glibc

extension PKCS11URI {
    /// Reads a URI.
    ///
    /// - Throws: `configurationInvalid`, without showing the URI's query, in which a PIN may be.
    init(_ text: String) throws(ProviderError) {
        guard text.lowercased().hasPrefix("pkcs11:") else {
            // Nor shown: the PIN may have been written there.
            throw ProviderError(
                .configurationInvalid, "The PKCS#11 URI does not begin with pkcs11: (RFC 7512).")
        }
        let (written, hasBlank) = Self.unfolded(text)
        let path = written.prefix { $0 != "?" }
        let query = written.dropFirst(path.count)
        let reader = Reader(shown: DisplayText.visible(String(path)))
        let named = try reader.path(path.dropFirst("pkcs11:".count), query.dropFirst())
        let asked = try reader.query(query.dropFirst())
        guard !hasBlank else {
            // As it was written, but for its query.
            let shown = DisplayText.visible(String(text.prefix { $0 != "?" }))
            throw ProviderError(
                .configurationInvalid,
                "The PKCS#11 URI '\(shown)'\(query.isEmpty ? "" : ", with its query,") contains a blank; write each blank as "
                    + "%20 (RFC 7512, section 2.3).")
        }

        self.text = String(path)
        self.query = asked.pin == nil ? String(query) : ""
        fields = try reader.fields(named)
        libraryVersion = try named["library-version"].map(reader.version)
        objectID = named["id"]
        objectLabel = named["object"]
        objectClass = try named["type"].map(reader.objectClass)
        moduleName = asked.texts["module-name"]
        modulePath = asked.texts["module-path"]
        pinSource = asked.texts["pin-source"] ?? asked.texts["pinfile"]
        pinValue = asked.pin
        guard pinSource == nil || pinValue == nil else {
            throw ProviderError(
                .configurationInvalid,
                "A PKCS#11 URI must not have both 'pin-source' and 'pin-value' (RFC 7512, section 2.4); remove "
                    + "'pin-value'.")
        }
        guard modulePath?.hasPrefix("/") ?? true else {
            throw ProviderError(
                .configurationInvalid,
                "The 'module-path' of a PKCS#11 URI must be an absolute path (RFC 7512, section 2.4).")
        }
    }

    /// Returns the URI in one line, without white space: it may be broken into lines, which may be indented (RFC 3986,
    /// appendix C).
    ///
    /// - Returns: Also whether there was a blank within a line.
    private static func unfolded(_ text: String) -> (String, hasBlank: Bool) {
        var written = String.UnicodeScalarView()
        var hasBlank = false
        // Blanks since the last character that stays, and whether a line has ended among them.
        var (blanks, isFolded) = (false, true)
        for scalar in text.unicodeScalars {
            if scalar == " " || scalar == "\t" {
                blanks = true
            } else if (10...13).contains(scalar.value) {
                isFolded = true
            } else {
                if blanks, !isFolded { hasBlank = true }
                (blanks, isFolded) = (false, false)
                written.append(scalar)
            }
        }
        return (String(written), hasBlank)
    }
}

/// The parts of a URI. Its errors show the path, and of the query only the names that RFC 7512 knows.
private struct Reader {
    /// The URI up to its question mark.
    let shown: String

    /// The attributes before the `?`, decoded, by their names (RFC 7512, section 2.3).
    func path(_ text: Substring, _ query: Substring) throws(ProviderError) -> [String: [UInt8]] {
        var attributes = text.split(separator: ";", omittingEmptySubsequences: false).map(Attribute.init)
        if attributes.last?.isEmpty == true { attributes.removeLast() }
        // A PIN there would get into everything that shows the URI. No attribute has a name like these.
        let lowercased = text.lowercased()
        guard !attributes.contains(where: { $0.name.lowercased().contains("pin") }), !lowercased.contains("pin-value"),
            !lowercased.contains("pinfile")
        else {
            throw ProviderError(
                .configurationInvalid,
                "A PKCS#11 URI has a PIN before its '?'; write the PIN to a file that only you can read, and set "
                    + "'pin-source' to it.")
        }
        try refuseMisplaced(query)
        var values: [String: [UInt8]] = [:]
        for attribute in attributes {
            let name = String(attribute.name)
            guard !name.isEmpty else {
                throw refused("has an empty attribute; remove the extra ';'")
            }
            guard name != "slot-id" else {
                throw ProviderError(
                    .configurationInvalid,
                    "A PKCS#11 URI must not have 'slot-id', which changes when a reader is plugged in; use 'token' or "
                        + "'serial'.")
            }
            guard Self.pathNames.contains(name) else {
                let known = Self.pathNames.subtracting(Self.aliases.keys).sorted().joined(separator: ", ")
                throw refused(
                    "has an unknown attribute '\(DisplayText.visible(name))'; use \(known) (RFC 7512, section 2.3)")
            }
            guard values[Self.aliases[name] ?? name] == nil else {
                throw refused("has '\(name)' more than once (RFC 7512, section 2.3); remove all but one")
            }
            values[Self.aliases[name] ?? name] = try decoded(attribute)
        }
        return values
    }

    /// The part behind the `?`, decoded.
    struct Query {
        /// The attributes by their names (RFC 7512, section 2.4).
        var texts: [String: String] = [:]
        /// `pin-value`.
        var pin: SecretBytes?
    }

    /// The attributes of vendors are ignored.
    func query(_ text: Substring) throws(ProviderError) -> Query {
        var query = Query()
        for attribute in text.split(separator: "&").map(Attribute.init) {
            let name = String(attribute.name)
            guard Self.queryNames.contains(name) else { continue }
            guard query.texts[name] == nil, name != "pin-value" || query.pin == nil else {
                throw refused("has '\(name)' more than once (RFC 7512, section 2.4); remove all but one")
            }
            var bytes = try decoded(attribute)
            if name == "pin-value" {
                query.pin = SecretBytes(copying: bytes)
                bytes.withUnsafeMutableBytes { if let start = $0.baseAddress { explicit_bzero(start, $0.count) } }
            } else if let value = String(validating: bytes, as: UTF8.self), !bytes.contains(0) {
                query.texts[name] = value
            } else {
                throw refused("has a '\(name)' that is not a text in UTF-8 (RFC 7512, section 2.4)")
            }
        }
        return query
    }

    /// Refuses what would be ignored: then any token, or no PIN, would be meant. Nothing is shown that may be a part of a
    /// PIN.
    private func refuseMisplaced(_ query: Substring) throws(ProviderError) {
        for name in query.split(separator: "&").map({ String(Attribute($0).name) }) {
            guard !Self.pathNames.contains(name), name != "slot-id" else {
                throw refused(
                    "has '\(name)' after its '?', where it is ignored; move it before the '?' (RFC 7512, section 2.3)")
            }
            guard !name.lowercased().hasPrefix("pin") || Self.queryNames.contains(name) else {
                throw refused("has an attribute after its '?' that begins with 'pin' and is unknown; use 'pin-source'")
            }
        }
    }

    func fields(_ values: [String: [UInt8]]) throws(ProviderError) -> [PKCS11URI.Field: [UInt8]] {
        var fields: [PKCS11URI.Field: [UInt8]] = [:]
        for field in PKCS11URI.Field.allCases {
            guard let value = values[field.rawValue] else { continue }
            guard value.count <= field.size else {
                throw refused(
                    "can match nothing: '\(field.rawValue)' has \(value.count) bytes, and at most \(field.size) are possible "
                        + "(PKCS#11, section 3.2)")
            }
            fields[field] = value.withoutPadding
        }
        return fields
    }

    func version(_ value: [UInt8]) throws(ProviderError) -> PKCS11URI.Version {
        let parts = String(decoding: value, as: UTF8.self).split(separator: ".", omittingEmptySubsequences: false)
        let numbers = parts.compactMap { $0.allSatisfy(\.isNumber) ? UInt8($0) : nil }
        guard (1...2).contains(parts.count), numbers.count == parts.count else {
            throw refused("has a 'library-version' that is not a number or two with a dot (RFC 7512, section 2.3)")
        }
        return PKCS11URI.Version(major: numbers[0], minor: numbers.count > 1 ? numbers[1] : 0)
    }

    func objectClass(_ value: [UInt8]) throws(ProviderError) -> UInt {
        let name = String(decoding: value, as: UTF8.self)
        guard let objectClass = PKCS11URI.classes[name == "secretkey" ? "secret-key" : name] else {
            throw refused(
                "has an unknown 'type'; use \(PKCS11URI.classes.keys.sorted().joined(separator: ", ")) (RFC 7512, section "
                    + "2.3)")
        }
        return objectClass
    }

    private func decoded(_ attribute: Attribute) throws(ProviderError) -> [UInt8] {
        guard let value = attribute.value else {
            throw refused("is not valid (RFC 7512): '\(DisplayText.visible(String(attribute.name)))' has no value")
        }
        guard let bytes = ByteText.percentDecoded(value.utf8) else {
            throw refused(
                "is not valid (RFC 7512): in '\(attribute.name)' a percent sign is not followed by two hexadecimal digits"
            )
        }
        return bytes
    }

    private func refused(_ reason: String) -> ProviderError {
        ProviderError(.configurationInvalid, "The PKCS#11 URI '\(shown)' \(reason).")
    }

    private struct Attribute {
        let name: Substring
        let value: Substring?

        init(_ text: Substring) {
            name = text.prefix { $0 != "=" }
            value = name.endIndex < text.endIndex ? text[text.index(after: name.endIndex)...] : nil
        }

        var isEmpty: Bool { name.isEmpty && value == nil }
    }

    /// Names of drafts of the RFC, which some tools write still.
    private static let aliases = ["object-type": "type", "objecttype": "type"]
    private static let pathNames = Set(
        PKCS11URI.Field.allCases.map(\.rawValue) + ["library-version", "object", "type", "id"] + aliases.keys)
    private static let queryNames: Set<String> = ["module-name", "module-path", "pin-source", "pin-value", "pinfile"]
}
