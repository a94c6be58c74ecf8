import SwiftASN1
import X509

/// The names that a CA certificate permits or excludes below it (RFC 5280, section 4.2.1.10): one subtree of its constraints.
struct NameConstraint {
    /// The form of the names that it is for.
    fileprivate let form: NameForm?
    /// `nil` for one that cannot be compared with names.
    private let area: Area?

    private enum Area {
        case dns(Domain)
        /// Of the authority of a URI.
        case host(Domain)
        case mail(local: String?, Domain)
        case directory(CanonicalName)
        case network(address: [UInt8], mask: [UInt8])
    }

    init(_ base: GeneralName) {
        form = NameForm(AlternativeName(base))
        switch base {
        case .dnsName(let text): area = Domain(text, includesSubdomains: true).map(Area.dns)
        case .uniformResourceIdentifier(let text): area = Domain(text, includesSubdomains: false).map(Area.host)
        case .rfc822Name(let text):
            guard text.utf8.contains(UInt8(ascii: "@")) else {
                area = Domain(text, includesSubdomains: false).map { Area.mail(local: nil, $0) }
                return
            }
            area = ComparableName.mailbox(text).map { local, labels in
                Area.mail(local: local, Domain(labels: labels, includesItself: true, includesSubdomains: false))
            }
        case .directoryName(let name): area = .directory(CanonicalName(name))
        case .ipAddress(let octets):
            let half = octets.bytes.count / 2
            let (address, mask) = (Array(octets.bytes.prefix(half)), Array(octets.bytes.dropFirst(half)))
            let isNetwork = [8, 32].contains(octets.bytes.count) && mask.isPrefixMask
            area = isNetwork ? .network(address: address, mask: mask) : nil
        case .otherName, .x400Address, .ediPartyName, .registeredID: area = nil
        }
    }

    /// Whether every name that `name` stands for lies within.
    fileprivate func contains(_ name: ComparableName) -> Bool { matches(name) { $0 == $1 } }

    /// Whether a name that `name` stands for lies within. A wildcard stands for any label.
    fileprivate func touches(_ name: ComparableName) -> Bool { matches(name) { $0 == $1 || $1 == "*" } }

    private func matches(_ name: ComparableName, _ isSame: (String, String) -> Bool) -> Bool {
        switch (area, name) {
        case (.dns(let domain), .dns(let labels)), (.host(let domain), .host(let labels)):
            domain.matches(labels, isSame)
        case (.mail(let wanted, let domain), .mail(let local, let labels)):
            (wanted == nil || wanted == local) && domain.matches(labels, isSame)
        case (.directory(let base), .directory(let name)): name.begins(with: base)
        case (.network(let network, let mask), .address(let address)):
            address.count == network.count
                && mask.indices.allSatisfy { address[$0] & mask[$0] == network[$0] & mask[$0] }
        default: false
        }
    }

    fileprivate var canBeCompared: Bool { area != nil }
}

extension NameConstraint {
    /// Returns why the constraints of a CA certificate do not permit these names below it, as a clause without subject; `nil` if
    /// they do.
    ///
    /// Names are compared with the constraints for their form. One that cannot be compared is refused, as are all of a form with a
    /// constraint that cannot be.
    static func refusal(
        of names: [AlternativeName], permitted: [NameConstraint], excluded: [NameConstraint]
    ) -> String? {
        for name in names {
            let form = NameForm(name)
            // A name that cannot be read may be of any form.
            func isForName(_ constraint: NameConstraint) -> Bool { form == nil || constraint.form == form }
            let (permitted, excluded) = (permitted.filter(isForName), excluded.filter(isForName))
            guard !permitted.isEmpty || !excluded.isEmpty else { continue }
            guard let comparable = ComparableName(name), (permitted + excluded).allSatisfy(\.canBeCompared) else {
                return "has name constraints that cannot be compared with the name \(name) below it"
            }
            guard !excluded.contains(where: { $0.touches(comparable) }),
                permitted.isEmpty || permitted.contains(where: { $0.contains(comparable) })
            else { return "has name constraints that do not permit the name \(name) below it" }
        }
        return nil
    }
}

/// The form of a name: the alternative of `GeneralName` (RFC 5280, section 4.2.1.6), by its number.
private struct NameForm: Equatable {
    private let number: UInt8

    /// `nil` for bytes that are not a name.
    init?(_ name: AlternativeName) {
        switch name {
        case .upn, .other: number = 0
        case .email: number = 1
        case .dns: number = 2
        case .directory: number = 4
        case .uri: number = 6
        case .ip: number = 7
        case .registeredID: number = 8
        case .encoded(let der):
            guard let tag = der.first, tag & 0xc0 == 0x80 else { return nil }
            number = tag & 0x1f
        }
    }
}

/// A name that can be compared with constraints.
private enum ComparableName {
    /// Labels in lower case, the last one first; a wildcard is the label `*`.
    case dns([String])
    case host([String])
    case mail(local: String, [String])
    case directory(CanonicalName)
    case address([UInt8])

    init?(_ name: AlternativeName) {
        switch name {
        case .dns(let name):
            guard let labels = Domain.labels(name, wildcard: true) else { return nil }
            self = .dns(labels)
        case .uri(let uri):
            guard let labels = Self.host(ofURI: uri) else { return nil }
            self = .host(labels)
        case .email(let address):
            guard let (local, labels) = Self.mailbox(address) else { return nil }
            self = .mail(local: local, labels)
        case .directory(let name): self = .directory(CanonicalName(name))
        case .ip(let octets):
            guard [4, 16].contains(octets.count) else { return nil }
            self = .address(octets)
        case .upn, .registeredID, .other, .encoded: return nil
        }
    }

    /// Local part and host; `nil` for an address that not all programs read alike, such as one with quotes.
    static func mailbox(_ address: String) -> (local: String, labels: [String])? {
        let parts = address.split(separator: "@", omittingEmptySubsequences: false)
        guard parts.count == 2, !parts[0].isEmpty, let labels = Domain.labels(String(parts[1])),
            parts[0].utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\") })
        else { return nil }
        return (String(parts[0]), labels)
    }

    /// The host of a URI; `nil` for one without a host name, and for one with a user, which not all programs read alike.
    private static func host(ofURI uri: String) -> [String]? {
        let bytes = Array(uri.utf8)
        guard let colon = bytes.firstIndex(of: UInt8(ascii: ":")), colon > 0,
            bytes[(colon + 1)...].starts(with: "//".utf8)
        else { return nil }
        let authority = bytes[(colon + 3)...].prefix { !"/?#".utf8.contains($0) }
        let parts = authority.split(separator: UInt8(ascii: ":"), maxSplits: 1, omittingEmptySubsequences: false)
        guard let host = parts.first, parts.dropFirst().allSatisfy({ $0.allSatisfy(isDigit) }),
            let labels = Domain.labels(String(decoding: host, as: UTF8.self)),
            labels.first?.utf8.allSatisfy(isDigit) == false
        else { return nil }
        return labels
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }
}

/// The host names of a constraint.
private struct Domain {
    /// As in ``ComparableName``.
    let labels: [String]
    let includesItself: Bool
    let includesSubdomains: Bool

    init(labels: [String], includesItself: Bool, includesSubdomains: Bool) {
        (self.labels, self.includesItself, self.includesSubdomains) = (labels, includesItself, includesSubdomains)
    }

    /// Reads a constraint: a dot in front means subdomains only, and nothing at all means every name.
    ///
    /// - Parameter includesSubdomains: Whether they are included without a dot in front.
    init?(_ text: String, includesSubdomains: Bool) {
        if text.isEmpty {
            self.init(labels: [], includesItself: true, includesSubdomains: true)
            return
        }
        let isBelow = text.utf8.first == UInt8(ascii: ".")
        guard let labels = Self.labels(isBelow ? String(text.dropFirst()) : text) else { return nil }
        self.init(labels: labels, includesItself: !isBelow, includesSubdomains: isBelow || includesSubdomains)
    }

    func matches(_ name: [String], _ isSame: (String, String) -> Bool) -> Bool {
        guard name.count >= labels.count, name.count == labels.count ? includesItself : includesSubdomains else {
            return false
        }
        return zip(labels, name).allSatisfy { isSame($0, $1) }
    }

    /// The labels of a host name; `nil` for another text.
    ///
    /// - Parameter wildcard: Whether the first label may be `*`.
    static func labels(_ text: String, wildcard: Bool = false) -> [String]? {
        let labels = text.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        let isHost = labels.enumerated().allSatisfy { index, label in
            wildcard && index == 0 && label.elementsEqual("*".utf8) || !label.isEmpty && label.allSatisfy(isPlain)
        }
        guard isHost else { return nil }
        return labels.reversed().map { label in
            String(decoding: label.map { UInt8(ascii: "A")...UInt8(ascii: "Z") ~= $0 ? $0 | 0x20 : $0 }, as: UTF8.self)
        }
    }

    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
            true
        default: false
        }
    }
}

extension [UInt8] {
    /// Whether ones are followed by zeros only.
    fileprivate var isPrefixMask: Bool {
        let rest = drop { $0 == 0xff }
        guard let first = rest.first else { return true }
        return (~first).leadingZeroBitCount + first.trailingZeroBitCount >= 8 && rest.dropFirst().allSatisfy { $0 == 0 }
    }
}
