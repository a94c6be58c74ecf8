/// The parameters of one provider, from the property file or `--set`: names, values and their origins.
///
/// Descriptions never show values: a mistyped name may be followed by a secret.
public struct ProviderParameters: Sendable {
    /// A value and its origin, such as `clienthub.properties:12`.
    public struct Value: Sendable {
        /// The value as written.
        public var text: String
        /// The file and line of the value; `nil` if it does not come from a file.
        public var origin: String?

        /// Creates a value.
        public init(_ text: String, origin: String? = nil) {
            self.text = text
            self.origin = origin
        }
    }

    private var values: [String: Value]

    /// Creates parameters from names and values.
    public init(_ values: [String: Value] = [:]) { self.values = values }

    /// Returns the value of a parameter; `nil` if it is not set.
    public subscript(name: String) -> Value? {
        get { values[name] }
        set { values[name] = newValue }
    }

    /// The names of all parameters, in alphabetical order.
    public var names: [String] { values.keys.sorted() }

    /// Without their places.
    package var texts: [String: String] { values.mapValues(\.text) }

    /// Returns the text of a parameter; `nil` if it is not set or empty.
    package func string(_ name: String) -> String? {
        guard let text = values[name]?.text, !text.isEmpty else { return nil }
        return text
    }

    /// Whose parameters they are, for errors.
    package enum Owner: Sendable {
        case provider(ProviderID)
        case keyStore(scheme: String, storage: ProviderID)
        /// The property file itself: its sections.
        case propertyFile

        var provider: ProviderID? {
            switch self {
            case .provider(let id), .keyStore(_, let id): id
            case .propertyFile: nil
            }
        }

        /// A parameter in a sentence.
        func subject(_ name: String) -> String {
            if case .propertyFile = self { "The key '\(name)'" } else { "The parameter '\(name)'" }
        }
    }

    /// Returns the error for a parameter that is required and not given.
    func missing(_ name: String, of owner: Owner) -> ProviderError {
        let next =
            switch owner {
            case .provider(let id): "CertificateProvider.\(id).\(name), or --set \(name)=…"
            case .keyStore(let scheme, _): "KeyStore.\(scheme).\(name)"
            case .propertyFile: "it in the property file"
            }
        return ProviderError(
            .configurationInvalid, "\(owner.subject(name)) is missing: set \(next).", provider: owner.provider)
    }

    /// Returns the error for an invalid value. It does not show the value.
    func invalid(_ name: String, _ reason: String, of owner: Owner) -> ProviderError {
        ProviderError(
            .configurationInvalid, "\(place(name))\(owner.subject(name)) \(reason).", provider: owner.provider)
    }

    /// The place of a parameter before a sentence; empty if it is not from a file.
    private func place(_ name: String) -> String { values[name]?.origin.map { "\($0): " } ?? "" }

    /// Calls `body`, which converts a parameter's value, and adds the parameter's name and origin to its error.
    ///
    /// - Throws: The error of `body`, with `malformedData` replaced by `configurationInvalid`.
    func reading<T>(
        _ name: String, of owner: Owner, _ body: () throws(ProviderError) -> T
    ) throws(ProviderError) -> T {
        do throws(ProviderError) { return try body() } catch {
            var error = error
            if error.code == .malformedData { error.code = .configurationInvalid }
            throw self.error(error, about: name, of: owner)
        }
    }

    /// Returns `error` with the name and origin of a parameter added to its message, and the owner as its provider.
    func error(_ error: ProviderError, about name: String, of owner: Owner) -> ProviderError {
        var copy = error
        copy.message = "\(place(name))\(owner.subject(name)): \(error.message)"
        copy.provider = owner.provider
        return copy
    }

    /// Refuses parameters that the owner does not document.
    /// - Throws: `unsupportedParameter`, listing the documented parameters.
    func refuseUnknown(
        knowing documented: [ParameterDescriptor], of owner: Owner
    ) throws(ProviderError) {
        let known = documented.map(\.name)
        guard let unknown = names.first(where: { !known.contains($0) }) else { return }
        let hint = known.isEmpty ? "it takes none" : "it takes " + known.joined(separator: ", ")
        let subject =
            switch owner {
            case .provider(let id): "The provider '\(id)'"
            case .keyStore(let scheme, _): "The key store '\(scheme):'"
            case .propertyFile: "The property file"
            }
        throw ProviderError(
            .unsupportedParameter,
            "\(place(unknown))\(subject) has no parameter '\(unknown.withVisibleControls)'; \(hint).",
            provider: owner.provider)
    }
}

extension ProviderParameters.Value: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { "<redacted>" }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}

extension ProviderParameters: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { names.map { "\($0)=<redacted>" }.joined(separator: " ") }
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: []) }
}
