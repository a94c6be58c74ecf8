/// A media type (RFC 6838), such as `image/png` or `text/plain;charset=utf-8`.
struct MediaType {
    /// Without parameters, in lower case, by its usual name.
    let name: String
    /// In lower case.
    let parameters: [Substring]

    static let pdf = "application/pdf"
    /// Says nothing.
    static let unknown = "application/octet-stream"

    /// - Returns: `nil` for a text that is no media type, or has more than 255 characters.
    init?(_ text: some StringProtocol) {
        guard text.utf8.count <= 255 else { return nil }
        var parts = text.lowercased().split(separator: ";", omittingEmptySubsequences: false).map {
            $0.drop { $0 == " " }
        }
        let types = parts.removeFirst().split(separator: "/", omittingEmptySubsequences: false)
        guard types.count == 2, types.allSatisfy(Self.isToken),
            parts.allSatisfy({
                let halves = $0.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                return halves.count == 2 && Self.isToken(halves[0]) && Self.isToken(Self.unquoted(halves[1]))
            })
        else { return nil }
        let name = "\(types[0])/\(types[1])"
        self.name = Self.aliases[name] ?? name
        parameters = parts
    }

    private static func isToken(_ text: Substring) -> Bool {
        !text.isEmpty
            && text.utf8.allSatisfy {
                (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || "!#$&-^_.+".utf8.contains($0)
            }
    }

    private static func unquoted(_ text: Substring) -> Substring {
        text.count > 2 && text.first == "\"" && text.last == "\"" ? text.dropFirst().dropLast() : text
    }

    private static let aliases = [
        "image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png", "image/tif": "image/tiff",
        "application/x-pdf": pdf,
    ]

    /// Whether a `data:` URI with another type may have content of this one.
    func fits(_ other: MediaType?) -> Bool {
        guard let other else { return true }
        return other.name == name || other.name == Self.unknown
    }

    /// Whether a content can be of this type, as far as its first bytes, or its characters, tell.
    func canBe(_ content: [UInt8]) -> Bool {
        if let signatures = Self.signatures[name] {
            return signatures.contains { signature in
                content.count >= signature.count
                    && zip(signature, content).allSatisfy { expected, byte in expected.map { $0 == byte } ?? true }
            }
        }
        let set = parameters.first { $0.hasPrefix("charset=") }.map { Self.unquoted($0.dropFirst("charset=".count)) }
        // Other texts may say in themselves how they are encoded.
        let isText = ["text/plain", "application/json"].contains(name)
        switch set {
        case nil where isText, "utf-8" where isText || name.hasPrefix("text/"):
            return !content.contains(0) && String(validating: content, as: UTF8.self) != nil
        case "us-ascii" where isText: return content.allSatisfy { $0 > 0 && $0 < 0x80 }
        case nil where name.hasPrefix("text/") || name.hasSuffix("xml"):
            // Without NUL, unless it is UTF-16 or UTF-32.
            return !content.contains(0)
                || [[0xff, 0xfe], [0xfe, 0xff], [0, 0, 0xfe, 0xff]].contains(where: content.starts)
        default: return true
        }
    }

    /// How contents begin; `nil` for a byte that may be any.
    private static let signatures: [String: [[UInt8?]]] = {
        let zip: [[UInt8?]] = [[0x50, 0x4b, 3, 4], [0x50, 0x4b, 5, 6]]
        let office: [[UInt8?]] = [[0xd0, 0xcf, 0x11, 0xe0, 0xa1, 0xb1, 0x1a, 0xe1]]
        let riff: [UInt8?] = Array("RIFF".utf8) + [nil, nil, nil, nil]
        return [
            pdf: [Array("%PDF-".utf8)],
            "image/png": [[0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]],
            "image/jpeg": [[0xff, 0xd8, 0xff]],
            "image/gif": [Array("GIF87a".utf8), Array("GIF89a".utf8)],
            "image/tiff": [
                [0x49, 0x49, 0x2a, 0], [0x4d, 0x4d, 0, 0x2a], [0x49, 0x49, 0x2b, 0], [0x4d, 0x4d, 0, 0x2b],
            ],
            "image/bmp": [Array("BM".utf8)],
            "image/webp": [riff + Array("WEBP".utf8)],
            "application/zip": zip,
            "application/msword": office, "application/vnd.ms-excel": office, "application/vnd.ms-powerpoint": office,
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document": zip,
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": zip,
            "application/vnd.openxmlformats-officedocument.presentationml.presentation": zip,
            "application/vnd.oasis.opendocument.text": zip, "application/vnd.oasis.opendocument.spreadsheet": zip,
        ]
    }()
}
