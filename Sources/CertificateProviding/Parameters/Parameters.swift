/// The parameters of one provider or key store, or the settings of a property file's sections, parsed and checked.
public struct Parameters: Sendable {
    private let values: [String: any Sendable]
    /// As they are configured.
    package let texts: ProviderParameters
    /// Those that there are: of groups, those of each member.
    package let declared: [ParameterDescriptor]
    private let owner: ProviderParameters.Owner

    /// Parses and checks what a configuration says.
    ///
    /// - Parameters:
    ///   - texts: Names and texts, from the property file or the command line.
    ///   - declared: The parameters that there are.
    ///   - owner: Whose they are, for errors.
    ///   - keyStores: Makes the stores of parameters of the kind `keyStore`.
    /// - Throws: `unsupportedParameter` for a name that is not declared; `configurationInvalid`, with the place, for a
    ///   parameter that is missing, cannot be parsed, or does not fit another one.
    package init(
        _ texts: ProviderParameters, of declared: [ParameterDescriptor], owner: ProviderID, keyStores: KeyStores
    ) throws(ProviderError) {
        try self.init(texts, of: declared, .provider(owner), keyStores: keyStores)
    }

    package init(
        _ texts: ProviderParameters, of declared: [ParameterDescriptor], _ owner: ProviderParameters.Owner,
        keyStores: KeyStores
    ) throws(ProviderError) {
        try texts.refuseUnknown(knowing: declared, of: owner)
        (self.texts, self.declared, self.owner) = (texts, declared, owner)
        let context = ParameterContext(keyStores: keyStores, parameters: texts)
        var values: [String: any Sendable] = [:]
        for parameter in declared {
            values[parameter.name] = try Self.value(of: parameter, texts, owner, context)
        }
        self.values = values
        for parameter in declared where texts.string(parameter.name) != nil { try checkFit(parameter, declared) }
    }

    /// None are declared.
    package init() { (values, texts, declared, owner) = ([:], ProviderParameters(), [], .propertyFile) }

    /// Returns the value of a parameter, or its default.
    ///
    /// - Precondition: The parameter is among those that the descriptor declares.
    public subscript<Value>(parameter: Parameter<Value>) -> Value {
        if let value = values[parameter.name] as? Value { return value }
        guard let absent = parameter.absent else {
            preconditionFailure("'\(parameter.name)' is not among the declared parameters")
        }
        return absent
    }

    /// Returns the numbers for which the property file has a group, in their order.
    ///
    /// - Parameter setting: One of the group, with `<number>` in its name.
    package func members(of setting: Parameter<some Sendable>) -> [Int] {
        declared.compactMap { setting.descriptor.number(in: $0.name) }.sorted()
    }

    /// Returns the text of a parameter, as it is configured; nil where it is not given.
    public func text(_ parameter: Parameter<some Sendable>) -> String? { texts.string(parameter.name) }

    /// Whether the configuration says anything for a parameter, other than a blank.
    public func isGiven(_ parameter: Parameter<some Sendable>) -> Bool { texts.string(parameter.name) != nil }

    /// Returns the error for a value that cannot be used. The value itself is not shown.
    ///
    /// - Parameter reason: A phrase that follows the name, such as `must be absolute`.
    public func invalid(_ parameter: Parameter<some Sendable>, _ reason: String) -> ProviderError {
        texts.invalid(parameter.name, reason, of: owner)
    }

    /// Returns the error with the parameter that it is about, and where that is written.
    public func error(
        _ error: ProviderError, about parameter: Parameter<some Sendable>
    ) -> ProviderError {
        texts.error(error, about: parameter.name, of: owner)
    }

    /// Calls `body`, which reads what a parameter names, and adds the parameter to what it throws.
    ///
    /// - Throws: What `body` does, with the same code; `malformedData` becomes `configurationInvalid`.
    public func reading<T>(
        _ parameter: Parameter<some Sendable>, _ body: () throws(ProviderError) -> T
    ) throws(ProviderError) -> T {
        try texts.reading(parameter.name, of: owner, body)
    }

    private static func value(
        of parameter: ParameterDescriptor, _ texts: ProviderParameters, _ owner: ProviderParameters.Owner,
        _ context: ParameterContext
    ) throws(ProviderError) -> any Sendable {
        var text = texts.string(parameter.name)
        // In the property file a blank value is read like any other.
        if case .propertyFile = owner { text = texts[parameter.name]?.text }
        if text == nil, parameter.refusesBlank, texts[parameter.name] != nil {
            throw texts.invalid(parameter.name, "must not be empty", of: owner)
        }
        if text == nil, let absent = parameter.absent { return absent }
        // A key store's default is opened like any other.
        if text == nil, parameter.kind == .keyStore { text = parameter.defaultValue }
        guard let text else { throw texts.missing(parameter.name, of: owner) }
        do throws(ParameterProblem) { return try parameter.parse(text, context) } catch {
            switch error.content {
            case .phrase(let phrase): throw texts.invalid(parameter.name, phrase, of: owner)
            case .error(let error):
                throw try texts.reading(parameter.name, of: owner) {
                    () throws(ProviderError) -> ProviderError in throw error
                }
            }
        }
    }

    private func checkFit(
        _ parameter: ParameterDescriptor, _ declared: [ParameterDescriptor]
    ) throws(ProviderError) {
        for condition in parameter.needs {
            let text =
                texts.string(condition.name) ?? declared.first { $0.name == condition.name }?.defaultValue
            let holds = condition.value.map { $0 == text } ?? (texts.string(condition.name) != nil)
            guard holds else { throw texts.invalid(parameter.name, condition.text, of: owner) }
        }
        for name in parameter.excludes where texts.string(name) != nil {
            throw texts.invalid(parameter.name, "and '\(name)' exclude each other", of: owner)
        }
    }
}
