/// Whether the application is registered with the platform server, and whether this process can use that.
public enum LogonState: String, Sendable, Hashable, CaseIterable {
    /// The application has no vault.
    case notRegistered
    /// There is a vault, which needs its passcode.
    case registeredLocked
    /// This process has the key of the vault.
    case registeredUnlocked
}

extension RegistrationMachine.State {
    /// The state at rest.
    init(_ state: LogonState) {
        self =
            switch state {
            case .notRegistered: .notRegistered
            case .registeredLocked: .locked
            case .registeredUnlocked: .unlocked
            }
    }

    /// `nil` for a step.
    var atRest: LogonState? {
        switch self {
        case .notRegistered: .notRegistered
        case .locked: .registeredLocked
        case .unlocked: .registeredUnlocked
        default: nil
        }
    }
}

/// A registration of the application.
public struct RegisteredConnection: Sendable, Equatable {
    /// The connection's id, which the server gave it.
    public let id: ConnectionID
    /// Whether this call has made the registration; false for one that was there.
    public let isNew: Bool
}
