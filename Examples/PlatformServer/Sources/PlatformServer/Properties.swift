/// The settings of a connection that a client may set, by their OData names.
typealias ClientProperties = [String: String]

extension ClientProperties {
    static let settable: Set<String> = [
        "DeviceType", "DeviceModel", "DeviceSubType", "CustomCustom1", "CustomCustom2", "CustomCustom3",
        "CustomCustom4",
    ]
    static let maximumValueLength = 1024
}

/// A setting that the server decides, of an Edm type (OData 2).
struct ServerProperty: Sendable {
    enum Value: Sendable {
        case boolean(Bool)
        case integer(Int32)
    }

    var name: String
    var value: Value
}

/// The policy for the passcode of the client's vault, as every connection's settings show it.
struct PasswordPolicy: Sendable {
    private(set) var properties: [ServerProperty] = [
        ServerProperty(name: "PasswordPolicyEnabled", value: .boolean(true)),
        ServerProperty(name: "PasswordPolicyDefaultPasswordAllowed", value: .boolean(false)),
        ServerProperty(name: "PasswordPolicyMinLength", value: .integer(8)),
        ServerProperty(name: "PasswordPolicyDigitRequired", value: .boolean(false)),
        ServerProperty(name: "PasswordPolicyUpperRequired", value: .boolean(false)),
        ServerProperty(name: "PasswordPolicyLowerRequired", value: .boolean(false)),
        ServerProperty(name: "PasswordPolicySpecialRequired", value: .boolean(false)),
        ServerProperty(name: "PasswordPolicyMinUniqueChars", value: .integer(0)),
        ServerProperty(name: "PasswordPolicyExpiresInNDays", value: .integer(0)),
        ServerProperty(name: "PasswordPolicyRetryLimit", value: .integer(10)),
        ServerProperty(name: "PasswordPolicyLockTimeout", value: .integer(300)),
    ]

    /// - Parameter assignment: `NAME=VALUE`, with `true`, `false` or a number that is not negative.
    /// - Returns: false if the name is unknown, or the value has another type.
    mutating func set(_ assignment: String) -> Bool {
        let parts = assignment.split(separator: "=", maxSplits: 1).map(String.init)
        guard parts.count == 2, let index = properties.firstIndex(where: { $0.name == parts[0] }) else { return false }
        switch properties[index].value {
        case .boolean:
            guard let flag = Bool(parts[1]) else { return false }
            properties[index].value = .boolean(flag)
        case .integer:
            guard let number = Int32(parts[1]), number >= 0 else { return false }
            properties[index].value = .integer(number)
        }
        return true
    }
}
