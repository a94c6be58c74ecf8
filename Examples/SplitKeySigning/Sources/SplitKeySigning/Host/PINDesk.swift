public import CertificateProviding
public import Logging

/// Gets PINs: from configured sources, else from a person.
public struct PINDesk: Sendable {
    private let sources: [MPinID.Scope: SecretSource]
    private let secrets: SecretReader
    private let interaction: any UserInteraction
    private let logger: Logger

    /// - Parameters:
    ///   - sources: The configured ones. `prompt` counts as none.
    ///   - logger: Gets which key is used and which source has its PIN, from `debug`.
    public init(
        _ sources: [MPinID.Scope: SecretSource], secrets: SecretReader = SecretReader(),
        asking interaction: any UserInteraction, logger: Logger = Logger(label: "splitkey")
    ) {
        self.sources = sources.filter { $0.value != .prompt }
        (self.secrets, self.interaction, self.logger) = (secrets, interaction, logger)
    }

    private func log(_ key: SplitKey, _ source: SecretSource) {
        logger.debug(
            "a key is used",
            metadata: [
                "use": "\(key.scope == .login ? "login" : "signing")", "user": "\(DisplayText.visible(key.userID))",
                "authority": "\(DisplayText.visible(key.authority))", "pin-source": "\(source)",
            ])
    }

    /// A PIN for a new key, or a new PIN for a key: a person types it twice.
    ///
    /// - Parameters:
    ///   - source: Has the PIN instead.
    ///   - place: Where a source can be named, for the error where there is no person.
    func newPIN(
        _ scope: MPinID.Scope, from source: SecretSource? = nil, orIn place: String = "--new-pin-source"
    ) async throws(ProviderError) -> PIN {
        let name = "new \(scope.pinName)"
        logger.debug("a PIN is set", metadata: ["pin": "\(name)", "pin-source": "\(source ?? .prompt)"])
        if let source, source != .prompt { return try PIN(try secrets.read(source), named: "\(name) in \(source)") }
        let pin = try PIN(try await ask("New \(scope.pinName) (4 to 8 digits)", orIn: place), named: name)
        guard try PIN(try await ask("Repeat the \(scope.pinName)", orIn: place), named: name) == pin else {
            throw ProviderError(.malformedData, "The two \(scope.pinName)s are not the same; begin again.")
        }
        return pin
    }

    /// The PIN for the enrolment of a key: of the configured source, else typed twice.
    public func enrolmentPIN(_ scope: MPinID.Scope) async throws(ProviderError) -> PIN {
        try await newPIN(scope, from: sources[scope], orIn: "'\(scope.pinSetting)'")
    }

    /// Asks a person.
    private func ask(_ prompt: String, orIn place: String) async throws(ProviderError) -> SecretBytes {
        do throws(ProviderError) { return try await interaction.requestSecret(prompt) } catch {
            guard error.code == .interactionRequired else { throw error }
            throw ProviderError(
                error.code,
                "There is no terminal to ask \"\(prompt)\"; run the command at a terminal, or name a source of the PIN with \(place).",
                underlying: error)
        }
    }

    /// Uses the PIN of a key for one try at the authority. What becomes of a configured one is written down.
    ///
    /// - Parameters:
    ///   - isConfirmed: Whether its enrolment has come to its end. Otherwise the same user may have a former key, whose PIN was wrong.
    ///   - prepare: Is called with the PIN at hand, and before its use is written down: a server that is not there costs no use.
    ///   - body: Throws `pinIncorrect` or `pinLocked` if the authority says so; any error with the reason `nothingSent` if the PIN was
    ///     not used.
    /// - Throws: `pinIncorrect` for a configured PIN that was wrong before, where there is no person to type another;
    ///   `operationNotAllowed` with the reason `busy` while another process uses it.
    func use<Prepared, Outcome>(
        ofKey key: SplitKey, in storage: any IdentityStorage, isConfirmed: Bool = true, isTry: Bool = true,
        _ prepare: () async throws(ProviderError) -> Prepared,
        _ body: (PIN, Prepared) async throws(ProviderError) -> Outcome
    ) async throws(ProviderError) -> Outcome {
        let name = SplitKeyStore.name(key.authority, key.userID, key.scope, isConfirmed: isConfirmed)
        guard let configured = sources[key.scope] else { return try await useTyped(key, prepare, body) }
        let lease = try await Self.lease(name, in: storage, of: key)
        defer { withExtendedLifetime(lease) {} }
        let uses = PINUses(storage)
        let source = try PINUses.Source(configured)
        let verdict = try uses.verdict(source, for: name)
        guard verdict == .usable else {
            guard interaction.canAsk else { throw Self.refusal(verdict, source, key) }
            return try await useTyped(key, prepare, body)
        }
        let subject = "\(key.pinSubject) in \(source.description)"
        log(key, configured)
        let pin = try PIN(try secrets.read(configured), named: subject)
        try key.requireLength(of: pin, named: subject)
        let prepared = try await prepare()
        guard isTry else { return try await body(pin, prepared) }
        guard try PINUses.Source(configured) == source, try uses.begin(source, for: name) else {
            throw ProviderError(
                .operationNotAllowed, "The \(subject) is being changed; try again.", reason: .busy)
        }
        // Where what became of it cannot be written down, this counts as a use without an answer.
        do throws(ProviderError) {
            let outcome = try await body(pin, prepared)
            try? uses.accept(source, for: name)
            return outcome
        } catch {
            switch error.code {
            case .pinIncorrect, .pinLocked: try? uses.reject(source, for: name, isBlocked: error.code == .pinLocked)
            case _ where error.reason == .mayBeCounted: break
            case _ where error.reason == .nothingSent: try? uses.withdraw(source, for: name)
            // The answer is about something else.
            case .rejected, .configurationInvalid, .malformedData, .notFound, .operationNotAllowed, .serverNotTrusted:
                try? uses.withdraw(source, for: name)
            default: break
            }
            throw error.advising("It is the \(subject), which is not used again: \(source.advice(key.scope)).")
        }
    }

    /// Asks a person for the PIN, and uses it.
    private func useTyped<Prepared, Outcome>(
        _ key: SplitKey, _ prepare: () async throws(ProviderError) -> Prepared,
        _ body: (PIN, Prepared) async throws(ProviderError) -> Outcome
    ) async throws(ProviderError) -> Outcome {
        log(key, .prompt)
        let pin = try PIN(
            try await ask(key.pinSubject, orIn: "'\(key.scope.pinSetting)'"), named: key.pinSubject)
        try key.requireLength(of: pin, named: key.pinSubject)
        let prepared = try await prepare()
        do throws(ProviderError) { return try await body(pin, prepared) } catch {
            throw error.advising(
                "Run the command again with the right \(key.pinSubject); the third wrong one in a row blocks the key.")
        }
    }

    func use<Outcome>(
        ofKey key: SplitKey, in storage: any IdentityStorage, isConfirmed: Bool = true, isTry: Bool = true,
        _ body: (PIN) async throws(ProviderError) -> Outcome
    ) async throws(ProviderError) -> Outcome {
        try await use(ofKey: key, in: storage, isConfirmed: isConfirmed, isTry: isTry) {
        } _: { pin, _ throws(ProviderError) in
            try await body(pin)
        }
    }

    /// Waits for its turn.
    private static func lease(
        _ name: String, in storage: any IdentityStorage, of key: SplitKey
    ) async throws(ProviderError) -> RecordLease {
        let end = ContinuousClock.now + .seconds(30)
        while true {
            if let lease = try storage.leaseRecord(named: PINUses.lease(name)) { return lease }
            guard ContinuousClock.now < end, (try? await Task.sleep(for: .milliseconds(50))) != nil else {
                throw ProviderError(
                    .operationNotAllowed,
                    "Another process uses the PIN of \(DisplayText.visible(key.userID)); try again.", reason: .busy)
            }
        }
    }

    /// Forgets what is known of the sources of a key that has another PIN now. The configured one, where it does not have that, is not
    /// used until it changes.
    ///
    /// - Returns: Where the PIN is that is not the new one; `nil` if there is none.
    func retire(besides new: PIN, of key: SplitKey, in storage: any IdentityStorage) -> String? {
        let (uses, name) = (PINUses(storage), SplitKeyStore.name(key.authority, key.userID, key.scope))
        try? uses.forget(name)
        guard let configured = sources[key.scope], let source = try? PINUses.Source(configured),
            let pin = try? PIN(try secrets.read(configured)), pin != new
        else { return nil }
        try? uses.reject(source, for: name)
        return source.description
    }

    private static func refusal(
        _ verdict: PINUses.Verdict, _ source: PINUses.Source, _ key: SplitKey
    ) -> ProviderError {
        let subject = "The \(key.pinSubject) in \(source.description)"
        return switch verdict {
        case .blocked:
            ProviderError(
                .pinLocked,
                "The authority has blocked the key of the \(key.pinSubject). Enrol again with a new activation code: dvs enrol"
            )
        case .unanswered:
            ProviderError(
                .operationNotAllowed,
                "\(subject) was used twice without an answer, and the authority may have counted it. If it is right, \(source.adviceForRight(key.scope))."
            )
        case .unknown:
            ProviderError(
                .operationNotAllowed,
                "\(subject) may have been wrong before: what was known of it is lost. If it is right, \(source.adviceForRight(key.scope)). If that does not help, run at a terminal: dvs change-pin"
            )
        case .rejected, .usable:
            ProviderError(
                .pinIncorrect, "\(subject) was wrong, and is not used again: \(source.advice(key.scope)).")
        }
    }
}

extension ProviderError {
    /// The error with a next step, where it is that of a wrong PIN.
    fileprivate func advising(_ advice: String) -> Self {
        guard code == .pinIncorrect else { return self }
        var copy = self
        copy.message += " " + advice
        return copy
    }
}

extension SplitKey {
    fileprivate var pinSubject: String { "\(scope.pinName) of \(DisplayText.visible(userID))" }
}

extension MPinID.Scope {
    /// What its PIN is called.
    public var pinName: String {
        switch self {
        case .login: "login PIN"
        case .signing: "signing PIN"
        }
    }
    /// The setting of its source.
    public var pinSetting: String {
        switch self {
        case .login: "SplitKey.login-pin-source"
        case .signing: "SplitKey.pin-source"
        }
    }
}

extension PINUses.Source {
    /// The next step where the PIN was wrong. A source without a file is known by its name alone, whatever it has now.
    fileprivate func advice(_ scope: MPinID.Scope) -> String {
        isFile
            ? "write the right one there, or name another source with '\(scope.pinSetting)'"
            : "name another variable, credential or descriptor that has the right one with '\(scope.pinSetting)', or run at a terminal: dvs change-pin\(scope == .login ? " --login" : "")"
    }

    /// The next step where the PIN may be right.
    fileprivate func adviceForRight(_ scope: MPinID.Scope) -> String {
        isFile
            ? "write its file anew, or name another source with '\(scope.pinSetting)'"
            : "put it into another variable, credential or descriptor, and name that with '\(scope.pinSetting)'"
    }
}
