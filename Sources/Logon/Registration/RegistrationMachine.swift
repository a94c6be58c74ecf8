/// The states of a registration, and what follows in each: a pure function. ``Registrar`` does what it says.
///
/// A state is at rest, and the disk says which, or it is a step of an operation, whose effect ends with one result.
package enum RegistrationMachine {
    enum State: String, CaseIterable, Sendable {
        // At rest
        case notRegistered, locked, unlocked
        // Registering
        case obtaining, writing, connecting, creating
        // The passcode
        case unlocking, locking, changing, changingLocked
        // The password at the server
        case changingPassword
        // Replacing the certificate
        case forgetting, replacing
        // Leaving the server
        case reading, leaving, leavingWithPassword, deleting, destroying, destroyingAfterFailure
        // After wrong passcodes have destroyed the vault
        case informing
        // The same, whatever fails
        case readingByForce, leavingByForce, leavingWithPasswordByForce, destroyingByForce, informingByForce

        var isAtRest: Bool { [.notRegistered, .locked, .unlocked].contains(self) }
    }

    enum Command: String, CaseIterable, Sendable {
        case register, request, update, unregister, unregisterByForce, unlock, lock, changePasscode, changePassword
    }

    /// The configuration's part of the situation, beside the vault.
    enum Situation: String, CaseIterable, Sendable {
        /// The policy `certificate`, with a provider. While registered: the one that the vault names.
        case certificate
        /// The policy `certificate`, without a provider.
        case noProvider
        /// The policy `automatic` or `manual`.
        case password
        /// Another policy or provider than the vault names.
        case changed
        /// The server has removed the connection, and the unregistration was interrupted.
        case left
    }

    enum Event: Hashable, Sendable {
        case command(Command, Situation)
        /// Results of the effect of a step.
        case done, failed
        /// The last wrong passcode has destroyed the vault.
        case destroyed

        static var all: [Event] {
            Command.allCases.flatMap { command in Situation.allCases.map { .command(command, $0) } }
                + [.done, .failed, .destroyed]
        }
    }

    /// The effect of a step. Those of providers and the server are the calls of the table in the documentation.
    enum Effect: String, CaseIterable, Sendable {
        case getCertificate, getStoredCertificate, deleteStoredCertificate
        /// Has each configured provider delete what it can without the vault, in which their ids and records were. Never fails.
        case deleteStoredCertificates
        /// Chooses the connection's id, unless there is one already, and writes it down.
        case writeConnection
        case post, delete
        case createVault, destroyVault, unlockVault, lockVault, changePasscode, changePassword
    }

    enum Outcome: Hashable, Sendable {
        /// The operation is done, or there was nothing to do.
        case success
        /// The error of an effect is the operation's: the first one.
        case failure
        /// Nothing was done.
        case refused(Refusal)
    }

    enum Refusal: String, CaseIterable, Sendable {
        case busy, notRegistered, vaultLocked, noProvider, noPassword, configurationChanged, leaving
    }

    struct Transition: Hashable, Sendable {
        var state: State
        /// For a step; `nil` at rest.
        var effect: Effect?
        /// At rest; `nil` for a step.
        var outcome: Outcome?
    }

    /// Returns what follows an event; `nil` for a result that no effect of the state has.
    static func next(_ state: State, _ event: Event) -> Transition? {
        if case .command(let command, let situation) = event {
            switch state {
            case .notRegistered: return unregistered(command, situation)
            case .locked: return locked(command)
            case .unlocked: return unlocked(command, situation)
            default: return Transition(state: state, outcome: .refused(.busy))
            }
        }
        switch (state, event) {
        case (.obtaining, .done): return step(.writing, .writeConnection)
        case (.writing, .done): return step(.connecting, .post)
        case (.connecting, .done): return step(.creating, .createVault)
        case (.creating, .done): return rest(.unlocked, .success)
        case (.obtaining, .failed), (.writing, .failed), (.connecting, .failed), (.creating, .failed):
            return rest(.notRegistered, .failure)

        case (.unlocking, .done), (.changing, .done), (.changingLocked, .done): return rest(.unlocked, .success)
        case (.unlocking, .failed), (.changingLocked, .failed): return rest(.locked, .failure)
        case (.changing, .failed): return rest(.unlocked, .failure)
        case (.unlocking, .destroyed), (.changing, .destroyed), (.changingLocked, .destroyed):
            return step(.informing, .deleteStoredCertificates)
        case (.informing, .done), (.informing, .failed): return rest(.notRegistered, .failure)
        case (.changingPassword, .done): return rest(.unlocked, .success)
        case (.changingPassword, .failed): return rest(.unlocked, .failure)
        case (.locking, .done): return rest(.locked, .success)
        case (.locking, .failed): return rest(.unlocked, .failure)

        case (.forgetting, .done): return step(.replacing, .getCertificate)
        case (.replacing, .done): return rest(.unlocked, .success)
        case (.forgetting, .failed), (.replacing, .failed): return rest(.unlocked, .failure)

        case (.reading, .done): return step(.leaving, .delete)
        case (.readingByForce, .done): return step(.leavingByForce, .delete)
        case (.leaving, .done), (.readingByForce, .failed), (.leavingByForce, .done), (.leavingByForce, .failed):
            return step(.deleting, .deleteStoredCertificate)
        case (.deleting, .done), (.leavingWithPassword, .done), (.leavingWithPasswordByForce, .done),
            (.leavingWithPasswordByForce, .failed):
            return step(.destroying, .destroyVault)
        case (.deleting, .failed): return step(.destroyingAfterFailure, .destroyVault)
        case (.reading, .failed), (.leaving, .failed), (.leavingWithPassword, .failed):
            return rest(.unlocked, .failure)
        case (.destroying, .done): return rest(.notRegistered, .success)
        case (.destroyingAfterFailure, .done): return rest(.notRegistered, .failure)
        case (.destroyingByForce, .done): return step(.informingByForce, .deleteStoredCertificates)
        case (.informingByForce, .done): return rest(.notRegistered, .success)
        case (.informingByForce, .failed): return rest(.notRegistered, .failure)
        case (.destroying, .failed), (.destroyingAfterFailure, .failed), (.destroyingByForce, .failed):
            return rest(.locked, .failure)
        default: return nil
        }
    }

    private static func unregistered(_ command: Command, _ situation: Situation) -> Transition {
        switch command {
        case .register:
            switch situation {
            case .certificate: step(.obtaining, .getCertificate)
            case .password: step(.writing, .writeConnection)
            case .noProvider: refused(.notRegistered, .noProvider)
            case .changed, .left: refused(.notRegistered, .configurationChanged)
            }
        case .unregister, .lock: rest(.notRegistered, .success)
        // The remains of an attempt to register.
        case .unregisterByForce: step(.destroying, .destroyVault)
        case .request, .update, .unlock, .changePasscode, .changePassword: refused(.notRegistered, .notRegistered)
        }
    }

    private static func locked(_ command: Command) -> Transition {
        switch command {
        case .register, .request, .update, .unregister, .changePassword: refused(.locked, .vaultLocked)
        // The data that the provider and the server would need is sealed.
        case .unregisterByForce: step(.destroyingByForce, .destroyVault)
        case .unlock: step(.unlocking, .unlockVault)
        case .lock: rest(.locked, .success)
        case .changePasscode: step(.changingLocked, .changePasscode)
        }
    }

    private static func unlocked(_ command: Command, _ situation: Situation) -> Transition {
        switch (command, situation) {
        case (.unlock, _): rest(.unlocked, .success)
        case (.lock, _): step(.locking, .lockVault)
        case (.changePasscode, _): step(.changing, .changePasscode)
        case (.unregister, .left), (.unregisterByForce, .left): step(.deleting, .deleteStoredCertificate)
        case (_, .left): refused(.unlocked, .leaving)
        case (.unregisterByForce, .certificate): step(.readingByForce, .getStoredCertificate)
        case (.unregisterByForce, .password): step(.leavingWithPasswordByForce, .delete)
        case (.unregisterByForce, _): step(.destroying, .destroyVault)
        case (_, .changed), (_, .noProvider): refused(.unlocked, .configurationChanged)
        case (.register, _), (.request, _): rest(.unlocked, .success)
        case (.changePassword, .password): step(.changingPassword, .changePassword)
        case (.changePassword, .certificate): refused(.unlocked, .noPassword)
        case (.update, .certificate): step(.forgetting, .deleteStoredCertificate)
        case (.update, .password): refused(.unlocked, .noProvider)
        case (.unregister, .certificate): step(.reading, .getStoredCertificate)
        case (.unregister, .password): step(.leavingWithPassword, .delete)
        }
    }

    private static func step(_ state: State, _ effect: Effect) -> Transition {
        Transition(state: state, effect: effect)
    }
    private static func rest(_ state: State, _ outcome: Outcome) -> Transition {
        Transition(state: state, outcome: outcome)
    }
    private static func refused(_ state: State, _ refusal: Refusal) -> Transition { rest(state, .refused(refusal)) }
}
