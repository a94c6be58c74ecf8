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

    /// Returns the text of a parameter; `nil` if it is not set or empty.
    package func string(_ name: String) -> String? {
        guard let text = values[name]?.text, !text.isEmpty else { return nil }
        return text
    }

    /// Returns the text of a required parameter.
    /// - Throws: `configurationInvalid`.
    func requiredString(
        _ name: String, provider: ProviderID, scheme: String? = nil
    ) throws(CertificateProviderError) -> String {
        guard let text = string(name) else {
            let next =
                scheme.map { "KeyStore.\($0).\(name)" } ?? "CertificateProvider.\(provider).\(name), or --set \(name)=…"
            throw CertificateProviderError(
                .configurationInvalid, "The parameter '\(name)' is missing: set \(next).",
                provider: provider)
        }
        return text
    }

    /// Returns the error for an invalid value. It does not show the value.
    func invalid(_ name: String, _ reason: String, provider: ProviderID) -> CertificateProviderError {
        let origin = values[name]?.origin.map { "\($0): " } ?? ""
        return CertificateProviderError(
            .configurationInvalid, "\(origin)The parameter '\(name)' \(reason).", provider: provider)
    }

    /// Calls `body`, which converts a parameter's value, and adds the parameter's name and origin to its error.
    ///
    /// - Throws: The error of `body`, with `malformedData` replaced by `configurationInvalid`.
    func reading<T>(
        _ name: String, provider: ProviderID, _ body: () throws(CertificateProviderError) -> T
    ) throws(CertificateProviderError) -> T {
        do throws(CertificateProviderError) { return try body() } catch {
            var error = error
            if error.code == .malformedData { error.code = .configurationInvalid }
            throw self.error(error, about: name, provider: provider)
        }
    }

    /// Returns `error` with the name and origin of a parameter added to its message, and `provider` as its provider.
    func error(
        _ error: CertificateProviderError, about name: String, provider: ProviderID
    ) -> CertificateProviderError {
        var copy = error
        let origin = values[name]?.origin.map { "\($0): " } ?? ""
        copy.message = "\(origin)The parameter '\(name)': \(error.message)"
        copy.provider = provider
        return copy
    }

    /// Refuses parameters that the provider does not document.
    /// - Throws: `unsupportedParameter`, listing the documented parameters.
    func refuseUnknown(
        knowing documented: [ParameterDescriptor], provider: ProviderID, scheme: String? = nil
    ) throws(CertificateProviderError) {
        let known = documented.map(\.name)
        guard let unknown = names.first(where: { !known.contains($0) }) else { return }
        let origin = values[unknown]?.origin.map { "\($0): " } ?? ""
        let hint = known.isEmpty ? "it takes none" : "it takes " + known.joined(separator: ", ")
        throw CertificateProviderError(
            .unsupportedParameter,
            "\(origin)\(scheme.map { "The key store '\($0):'" } ?? "The provider '\(provider)'") has no parameter '\(unknown.withVisibleControls)'; \(hint).",
            provider: provider)
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
