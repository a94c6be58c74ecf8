import SwiftASN1
import X509

/// A distinguished name in the form in which names are compared (RFC 5280, section 7.1): the type of a string, the case of ASCII
/// letters, and how many blanks there are do not count. A CA may write its name in another way than those whom it has certified.
package struct CanonicalName: Sendable, Hashable {
    private let name: DistinguishedName

    init(_ name: DistinguishedName) {
        self.name = DistinguishedName(
            name.map { relativeName in
                RelativeDistinguishedName(
                    relativeName.map { attribute in
                        guard let text = DistinguishedName.text(of: attribute.value) else { return attribute }
                        return .init(type: attribute.type, value: .init(utf8String: Self.canonical(text)))
                    })
            })
    }

    /// Reads a DER `Name`; `nil` for a malformed one.
    package init?(derEncoded der: [UInt8]) {
        guard let node = try? DER.parse(der), let name = try? DistinguishedName(derEncoded: node) else { return nil }
        self.init(name)
    }

    /// Whether the name is that of an entry at or below `base` in a directory.
    func begins(with base: CanonicalName) -> Bool { name.starts(with: base.name) }

    private static func canonical(_ text: String) -> String {
        let words = text.utf8.split { $0 == UInt8(ascii: " ") || (0x09...0x0d).contains($0) }
        let bytes = words.joined(separator: [UInt8(ascii: " ")]).map {
            (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
