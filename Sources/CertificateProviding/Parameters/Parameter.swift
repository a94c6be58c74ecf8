/// A documented, typed parameter of a provider or key store.
///
/// Declared once; parsing, checking, `certprov providers`, `certprov check`, the manual page and the documentation come
/// from the declaration:
///
///     static let timeout = Parameter.seconds("timeout", default: 60, in: 1...3600, summary: "How long …")
///
/// A parameter that may be left out has an optional type, or a default.
public struct Parameter<Value: Sendable>: Sendable {
    /// The same declaration without its type, for lists such as ``ProviderDescriptor/parameters``.
    public let descriptor: ParameterDescriptor
    /// The value where the parameter is not given; nil for a parameter that must be.
    let absent: Value?

    private init(_ descriptor: ParameterDescriptor, absent: Value?) {
        (self.descriptor, self.absent) = (descriptor, absent)
    }

    /// The setting of one member of a group: that of `Signing.client.<number>.name` for 7 is `Signing.client.7.name`.
    package func of(_ member: Int) -> Self { Self(descriptor.of(member), absent: absent) }

    /// The name in a property file and on the command line, such as `trust-anchors`.
    public var name: String { descriptor.name }

    /// Declares a parameter of any type.
    ///
    /// - Parameters:
    ///   - absent: The value where the parameter is not given; nil for a parameter that must be.
    ///   - defaultValue: The same in words, for the documentation.
    ///   - refusesBlank: Whether a blank value is an error. Otherwise it counts as not given.
    ///   - needs: Conditions that must hold if the parameter is given.
    ///   - excludes: Names of parameters that must not be given beside it.
    ///   - parse: Makes the value of the text, which is trimmed and not blank. Does no I/O.
    public init(
        _ name: String, _ kind: ParameterDescriptor.Kind, absent: Value?, defaultValue: String? = nil,
        refusesBlank: Bool = false, needs: [ParameterCondition] = [], excludes: [String] = [], summary: String,
        parse: @escaping @Sendable (String, ParameterContext) throws(ParameterProblem) -> Value
    ) {
        self.absent = absent
        self.descriptor = ParameterDescriptor(
            name, kind, isRequired: absent == nil, defaultValue: defaultValue, refusesBlank: refusesBlank,
            needs: needs, excludes: excludes, summary: summary, absent: absent
        ) { text, context throws(ParameterProblem) in try parse(text, context) }
    }

    /// Declares a parameter of any type that may be left out; its value is nil then.
    ///
    /// - Parameters:
    ///   - defaultValue: What that means, in words, for the documentation.
    ///   - refusesBlank: Whether a blank value is an error. Otherwise it counts as not given.
    ///   - needs: Conditions that must hold if the parameter is given.
    ///   - excludes: Names of parameters that must not be given beside it.
    ///   - parse: Makes the value of the text, which is trimmed and not blank. Does no I/O.
    public init<Wrapped>(
        _ name: String, _ kind: ParameterDescriptor.Kind, defaultValue: String? = nil, refusesBlank: Bool = false,
        needs: [ParameterCondition] = [], excludes: [String] = [], summary: String,
        parse: @escaping @Sendable (String, ParameterContext) throws(ParameterProblem) -> Value
    ) where Value == Wrapped? {
        self.init(
            name, kind, absent: .some(nil), defaultValue: defaultValue, refusesBlank: refusesBlank, needs: needs,
            excludes: excludes, summary: summary, parse: parse)
    }
}

/// A condition on another parameter.
public struct ParameterCondition: Sendable, Hashable {
    /// The other parameter.
    package let name: String
    /// The value that it must have; nil where it must only be given.
    package let value: String?

    /// The parameter `name` is given.
    public static func given(_ name: String) -> Self { Self(name: name, value: nil) }
    /// The parameter `name` has this value.
    public static func value(_ name: String, _ value: String) -> Self { Self(name: name, value: value) }

    var text: String { value.map { "belongs to \(name)=\($0)" } ?? "needs a '\(name)'" }
}

/// Why the text of a parameter is not a value. The framework makes the error of it, with the parameter's name and place.
public struct ParameterProblem: Error {
    enum Content {
        case phrase(String)
        case error(ProviderError)
    }
    let content: Content

    /// The text is not in the form that the parameter has.
    ///
    /// - Parameter phrase: Follows the parameter's name in the message, such as `must be true or false`. Never has the value itself,
    ///   which may be a misplaced secret.
    public static func expected(_ phrase: String) -> Self { Self(content: .phrase(phrase)) }

    /// The code that reads the value has thrown an error.
    public static func error(_ error: ProviderError) -> Self { Self(content: .error(error)) }
}

/// The context in which a parameter is parsed.
public struct ParameterContext: Sendable {
    /// Makes the key stores that URIs name.
    public let keyStores: KeyStores
    let parameters: ProviderParameters

    /// Returns the text of another parameter; nil where it is not given.
    public func text(_ name: String) -> String? { parameters.string(name) }
}

/// A documented parameter, without its type.
public struct ParameterDescriptor: Sendable {
    /// The name in a property file and on the command line, such as `trust-anchors`.
    public let name: String
    /// The form of the value.
    package let kind: Kind
    /// Whether the configuration must give a value.
    package let isRequired: Bool
    /// The value where the parameter is not given, in words; nil where there is none.
    package let defaultValue: String?
    /// Whether a blank value is an error. Otherwise it counts as not given. Always so for the kinds `pins`,
    /// `certificate-file` and `trust-anchors`: a blank must not turn a check off.
    package let refusesBlank: Bool
    /// Conditions that must all hold if the parameter is given.
    package let needs: [ParameterCondition]
    /// Names of parameters that must not be given beside this one.
    package let excludes: [String]
    /// One sentence.
    package let summary: String
    /// Whether another value means another identity, as the ``ProviderDescriptor`` says. If that says nothing, all do but sources of
    /// secrets, trust (`trust-anchors`, `pins`, and names that begin with `trust`), timeouts (`timeout`, `…-timeout`) and `usage`. The
    /// source of a secret never does.
    package private(set) var distinguishes: Bool
    let absent: (any Sendable)?
    let parse: @Sendable (String, ParameterContext) throws(ParameterProblem) -> any Sendable

    init(
        _ name: String, _ kind: Kind, isRequired: Bool, defaultValue: String?, refusesBlank: Bool,
        needs: [ParameterCondition], excludes: [String], summary: String, absent: (any Sendable)?,
        parse: @escaping @Sendable (String, ParameterContext) throws(ParameterProblem) -> any Sendable
    ) {
        self.name = name
        self.kind = kind
        self.isRequired = isRequired
        self.defaultValue = defaultValue
        self.refusesBlank = refusesBlank || [.pins, .certificateFile, .trustAnchors].contains(kind)
        self.needs = needs
        self.excludes = excludes
        self.summary = summary
        distinguishes =
            ![.secretSource, .trustAnchors, .pins].contains(kind) && !name.hasPrefix("trust")
            && name != "timeout" && !name.hasSuffix("-timeout") && name != "usage"
        self.absent = absent
        self.parse = parse
    }

    package func distinguishing(_ distinguishes: Bool) -> Self {
        var copy = self
        copy.distinguishes = distinguishes && kind != .secretSource
        return copy
    }

    private static let number = "<number>"

    /// The parts of the name around `<number>`; `nil` for a setting that is not of a group.
    private var group: (prefix: Substring, suffix: Substring)? {
        name.firstRange(of: Self.number).map { (name[..<$0.lowerBound], name[$0.upperBound...]) }
    }

    /// Whether it is a setting of every member of a group: its name has `<number>`.
    package var isOfGroup: Bool { group != nil }

    /// The number in a key of this setting; `nil` for another key. A number is decimal, without a zero in front.
    package func number(in key: String) -> Int? {
        guard let group, key.hasPrefix(group.prefix), key.hasSuffix(group.suffix),
            key.utf8.count > group.prefix.utf8.count + group.suffix.utf8.count
        else { return nil }
        let text = String(key.dropFirst(group.prefix.count).dropLast(group.suffix.count))
        return Int(text).flatMap { $0 >= 0 && String($0) == text ? $0 : nil }
    }

    /// Whether two settings are of the same group.
    package func isOfSameGroup(as other: Self) -> Bool { group != nil && group?.prefix == other.group?.prefix }

    /// The setting of one member of a group.
    package func of(_ member: Int) -> Self {
        func one(_ name: String) -> String { name.replacing(Self.number, with: String(member)) }
        return Self(
            one(name), kind, isRequired: isRequired, defaultValue: defaultValue, refusesBlank: refusesBlank,
            needs: needs.map { ParameterCondition(name: one($0.name), value: $0.value) }, excludes: excludes.map(one),
            summary: summary, absent: absent, parse: parse
        ).distinguishing(distinguishes)
    }

    /// The form of a value. Open: providers by other people have kinds of their own.
    public struct Kind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        /// A text, whose form the summary of the parameter names.
        public static let string = Self(rawValue: "string")
        /// The path of a file or directory on this host.
        public static let path = Self(rawValue: "path")
        /// The path of a file or directory with private keys, which other users must not read.
        public static let secretPath = Self(rawValue: "secret-path")
        /// A file of certificates, readable by every user.
        public static let certificateFile = Self(rawValue: "certificate-file")
        /// A file of certificates, readable by every user, or `system` for the system trust store.
        public static let trustAnchors = Self(rawValue: "trust-anchors")
        /// A file of certificates, or the URI of an identity in a key store.
        public static let certificate = Self(rawValue: "certificate")
        /// Pins as ``CertificatePin`` reads them, separated by commas.
        public static let pins = Self(rawValue: "pins")
        /// A shared library, readable by every user.
        public static let library = Self(rawValue: "library")
        /// `true` or `false`, in any case of letters.
        public static let boolean = Self(rawValue: "boolean")
        /// The source of a secret, as ``SecretSource`` reads it. Never the secret itself.
        public static let secretSource = Self(rawValue: "secret-source")
        /// A distinguished name (RFC 4514). A host variable in the property file is quoted there, and adds no part to it.
        public static let distinguishedName = Self(rawValue: "distinguished-name")
        /// Names to be certified, separated by commas. A host variable in the property file is a part of one name, and adds none.
        public static let names = Self(rawValue: "names")
        /// The URL of a server, with the scheme https or http. A host variable in the property file is percent-encoded there.
        public static let serverURL = Self(rawValue: "server-url")
        /// The URL of an HTTP proxy, or a word that means none.
        public static let proxyURL = Self(rawValue: "proxy-url")
        /// The URI of a key store.
        public static let keyStore = Self(rawValue: "key-store")

        /// Values that are separated by commas. A section of the property file takes keys that end in `.1`, `.2` and so on as well.
        public static let list = Self(rawValue: "list")

        /// All of these.
        package static let known: [Self] = [
            .string, .path, .secretPath, .certificateFile, .trustAnchors, .certificate, .pins, .library,
            .boolean, .secretSource, .distinguishedName, .names, .serverURL, .proxyURL, .keyStore,
        ]
    }
}

// MARK: - Common types

extension Parameter where Value == String? {
    /// A text that may be left out.
    public static func string(
        _ name: String, _ kind: ParameterDescriptor.Kind = .string, defaultValue: String? = nil,
        refusesBlank: Bool = false, needs: [ParameterCondition] = [], excludes: [String] = [], summary: String
    ) -> Self {
        Self(
            name, kind, defaultValue: defaultValue, refusesBlank: refusesBlank, needs: needs,
            excludes: excludes, summary: summary
        ) { text, _ in text }
    }
}

extension Parameter where Value == String {
    /// A text that must be given.
    public static func required(
        _ name: String, _ kind: ParameterDescriptor.Kind = .string, summary: String
    ) -> Self {
        Self(name, kind, absent: nil, summary: summary) { text, _ in text }
    }
}

extension Parameter where Value == Bool {
    /// `true` or `false`; false where it is not given.
    public static func flag(
        _ name: String, needs: [ParameterCondition] = [], excludes: [String] = [], summary: String
    ) -> Self {
        Self(
            name, .boolean, absent: false, defaultValue: "false", needs: needs, excludes: excludes, summary: summary
        ) { text, _ throws(ParameterProblem) in
            switch text.lowercased() {
            case "true": return true
            case "false": return false
            default: throw .expected("must be true or false")
            }
        }
    }
}

extension Parameter where Value == Bool {
    /// Whether a pin alone authenticates a peer: `pin-only`; or in addition to trust anchors: `pin-and-pki`, the default.
    public static func pinOnly(
        _ name: String = "pin-mode", needs: [ParameterCondition] = [],
        summary: String = "pin-and-pki, or pin-only for a server with a self-signed certificate."
    ) -> Self {
        Self(name, .string, absent: false, defaultValue: "pin-and-pki", needs: needs, summary: summary) {
            text, _ throws(ParameterProblem) in
            switch text {
            case "pin-and-pki": return false
            case "pin-only": return true
            default: throw .expected("must be pin-and-pki or pin-only")
            }
        }
    }
}

extension Parameter where Value == [String] {
    /// Pins as `CertificatePin` reads them, separated by commas; none where it is not given. A blank among them is an error: its value
    /// may have been lost, for example by a variable that is not set.
    public static func pins(
        _ name: String, defaultValue: String? = nil, needs: [ParameterCondition] = [], summary: String
    ) -> Self {
        Self(name, .pins, absent: [], defaultValue: defaultValue, needs: needs, summary: summary) {
            text, _ throws(ParameterProblem) in
            let pins = text.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
            guard !pins.contains("") else {
                throw .expected("has an empty pin; write the pin there, or remove the parameter")
            }
            return pins
        }
    }
}

extension Parameter where Value == Duration {
    /// A whole number of seconds.
    ///
    /// - Parameters:
    ///   - defaultValue: In seconds.
    ///   - range: The accepted values in seconds, both bounds included.
    public static func seconds(
        _ name: String, default defaultValue: Int, in range: ClosedRange<Int>, summary: String
    ) -> Self {
        Self(
            name, .string, absent: .seconds(defaultValue), defaultValue: String(defaultValue), summary: summary
        ) { text, _ throws(ParameterProblem) in
            guard let seconds = Int(text), range.contains(seconds) else {
                throw .expected(
                    "must be a number of seconds from \(range.lowerBound) to \(range.upperBound)")
            }
            return .seconds(seconds)
        }
    }
}

extension Parameter where Value == SecretSource? {
    /// The source of a secret: `file:PATH`, `env:NAME`, `fd:N`, `systemd:NAME` or `prompt`.
    public static func secretSource(
        _ name: String, defaultValue: String? = nil, needs: [ParameterCondition] = [], excludes: [String] = [],
        summary: String
    ) -> Self {
        Self(
            name, .secretSource, defaultValue: defaultValue, needs: needs, excludes: excludes,
            summary: summary
        ) { text, _ throws(ParameterProblem) in
            guard let source = SecretSource(text) else { throw .expected(SecretSource.expectation) }
            return source
        }
    }
}

extension Parameter where Value == SecretSource {
    /// The source of a secret, which must be given.
    public static func requiredSecretSource(_ name: String, summary: String) -> Self {
        Self(name, .secretSource, absent: nil, summary: summary) { text, _ throws(ParameterProblem) in
            guard let source = SecretSource(text) else { throw .expected(SecretSource.expectation) }
            return source
        }
    }
}

extension SecretSource {
    static let expectation = "must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt"
}

extension Parameter where Value: RawRepresentable & CaseIterable, Value.RawValue == String {
    /// One of the raw values of an enumeration.
    ///
    /// - Parameter defaultValue: nil for a parameter that must be given.
    public static func choice(
        _ name: String, default defaultValue: Value?, needs: [ParameterCondition] = [], excludes: [String] = [],
        summary: String
    ) -> Self {
        Self(
            name, .string, absent: defaultValue, defaultValue: defaultValue?.rawValue, needs: needs,
            excludes: excludes, summary: summary
        ) { text, _ throws(ParameterProblem) in
            guard let value = Value(rawValue: text) else {
                throw .expected("must be \(Value.allCases.map(\.rawValue).alternatives)")
            }
            return value
        }
    }
}

extension [String] {
    /// `a, b or c`.
    var alternatives: String {
        guard let last, count > 1 else { return first ?? "" }
        return dropLast().joined(separator: ", ") + " or " + last
    }
}

extension Parameter where Value == any KeyStore {
    /// The URI of a key store. Beside it stands the parameter `<name>-pin-source`, which goes to the store.
    public static func keyStore(
        _ name: String, default uri: String, needs: [ParameterCondition] = [], excludes: [String] = [],
        summary: String
    ) -> Self {
        Self(
            name, .keyStore, parsedDefault: uri, needs: needs, excludes: excludes, summary: summary
        ) { text, context throws(ParameterProblem) in try context.keyStore(text, for: name) }
    }

    private init(
        _ name: String, _ kind: ParameterDescriptor.Kind, parsedDefault: String, needs: [ParameterCondition],
        excludes: [String], summary: String,
        parse: @escaping @Sendable (String, ParameterContext) throws(ParameterProblem) -> any KeyStore
    ) {
        absent = nil
        descriptor = ParameterDescriptor(
            name, kind, isRequired: false, defaultValue: parsedDefault, refusesBlank: false, needs: needs,
            excludes: excludes, summary: summary, absent: nil
        ) { text, context throws(ParameterProblem) in try parse(text, context) }
    }
}

extension ParameterContext {
    fileprivate func keyStore(_ uri: String, for name: String) throws(ParameterProblem) -> any KeyStore {
        var source: SecretSource?
        // Beside the default store, its own check refuses it.
        if self.text(name) != nil, let text = text(name + ParameterDescriptor.pinSourceSuffix) {
            source = SecretSource(text)
            // The parameter's own parser reports the mistake.
        }
        do throws(ProviderError) {
            return try keyStores.store(uri, pinSource: source, parameter: name)
        } catch {
            throw .error(error)
        }
    }
}

extension ParameterDescriptor {
    package static let pinSourceSuffix = "-pin-source"

    /// The parameter with the one that comes with it.
    var withCompanion: [ParameterDescriptor] {
        guard kind == .keyStore else { return [self] }
        let companion = Parameter<SecretSource?>.secretSource(
            name + Self.pinSourceSuffix, defaultValue: "the URI's pin-source, else the user is asked",
            needs: [.given(name)], summary: "The source of the PIN of the key store; a service needs it.")
        return [self, companion.descriptor]
    }
}
