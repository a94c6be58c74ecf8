/// What the property file, or `--set`, says to one provider: names and values, and where each was written.
///
/// Values appear in no description, because a person who mistypes a name may have put a secret behind it.
public struct ProviderParameters: Sendable {
    /// A value and the place it came from, such as `clienthub.properties:12`.
    public struct Value: Sendable {
        public var text: String
        public var origin: String?

        public init(_ text: String, origin: String? = nil) {
            self.text = text
            self.origin = origin
        }
    }

    private var values: [String: Value]

    public init(_ values: [String: Value] = [:]) { self.values = values }

    public subscript(name: String) -> Value? {
        get { values[name] }
        set { values[name] = newValue }
    }

    /// In alphabetical order.
    public var names: [String] { values.keys.sorted() }

    /// Returns the text of a parameter; a blank one counts as not given.
    public func string(_ name: String) -> String? {
        guard let text = values[name]?.text, !text.isEmpty else { return nil }
        return text
    }

    /// Returns the text of a parameter that must be there.
    /// - Throws: `configurationInvalid`.
    public func requiredString(_ name: String, provider: ProviderID) throws(CertificateProviderError) -> String {
        guard let text = string(name) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The parameter '\(name)' is missing: set CertificateProvider.\(provider).\(name), or --set \(name)=….",
                provider: provider)
        }
        return text
    }

    /// Returns the secret source a parameter names.
    /// - Throws: `configurationInvalid`, with the place of the parameter.
    public func secretSource(
        _ name: String, provider: ProviderID
    ) throws(CertificateProviderError) -> SecretSource? {
        guard let text = string(name) else { return nil }
        guard let source = SecretSource(text) else {
            throw invalid(name, "must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt", provider: provider)
        }
        return source
    }

    /// Returns the error for a value that cannot be used. The value itself is not shown.
    public func invalid(_ name: String, _ reason: String, provider: ProviderID) -> CertificateProviderError {
        let origin = values[name]?.origin.map { "\($0): " } ?? ""
        return CertificateProviderError(
            .configurationInvalid, "\(origin)The parameter '\(name)' \(reason).", provider: provider)
    }

    /// Calls `body`, which makes something of a parameter's value, and says of what it throws which parameter that is
    /// and where it is written.
    ///
    /// - Throws: What `body` does, with the same code; what is malformed in a value as `configurationInvalid`.
    public func reading<T>(
        _ name: String, provider: ProviderID, _ body: () throws(CertificateProviderError) -> T
    ) throws(CertificateProviderError) -> T {
        do throws(CertificateProviderError) { return try body() } catch {
            var error = error
            if error.code == .malformedData { error.code = .configurationInvalid }
            throw self.error(error, about: name, provider: provider)
        }
    }

    /// Returns the error, with the parameter that it is about and where that is written. It is `provider`'s now, whoever
    /// has met it on its behalf.
    public func error(
        _ error: CertificateProviderError, about name: String, provider: ProviderID
    ) -> CertificateProviderError {
        var copy = error
        let origin = values[name]?.origin.map { "\($0): " } ?? ""
        copy.message = "\(origin)The parameter '\(name)': \(error.message)"
        copy.provider = provider
        return copy
    }

    /// Refuses parameters that the provider does not document.
    /// - Throws: `unsupportedParameter`, with what the provider does document.
    public func refuseUnknown(
        knowing documented: [ParameterDescriptor], provider: ProviderID
    ) throws(CertificateProviderError) {
        let known = documented.map(\.name)
        guard let unknown = names.first(where: { !known.contains($0) }) else { return }
        let origin = values[unknown]?.origin.map { "\($0): " } ?? ""
        let hint = known.isEmpty ? "it takes none" : "it takes " + known.joined(separator: ", ")
        throw CertificateProviderError(
            .unsupportedParameter,
            "\(origin)The provider '\(provider)' has no parameter '\(unknown.withVisibleControls)'; \(hint).",
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
