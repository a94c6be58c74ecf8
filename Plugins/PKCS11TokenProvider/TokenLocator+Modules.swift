import CP11Kit
import CertificateProviding
import Glibc
import Logging

extension TokenLocator {
    /// Returns the tokens that are there now and that the URI matches.
    /// - Parameter failures: Gets the failures of single modules.
    func present(_ failures: inout [ProviderError]) throws(ProviderError) -> [(Token, Slot)] {
        let modules = try modules()
        if modules.contains(where: \.readsOnce) { takeTurn() }
        let before = failures.count
        var views = visit(modules.map { module in (module: module, item: ()) }, &failures) {
            [self] reference, _ throws(ProviderError) -> View? in
            guard let module = try reference.module(for: settings.uri) else { return nil }
            return try describing(module) { () throws(CryptokiError) in try look(at: module, reference) }
        }.compactMap(\.self)
        // Once the named token is found, other readers do not matter.
        var isFound: Bool { settings.uri.namesToken && views.contains { !$0.look.slots.isEmpty } }
        if settings.uri.namesToken, !isFound {
            let hiding = views.filter(\.mayHide)
            views.removeAll(where: \.mayHide)
            views += visit(hiding.map { view in (module: view.reference, item: view) }, &failures) {
                [self] _, view throws(ProviderError) in
                try describing(view.module) { () throws(CryptokiError) in try lookAgain(after: view) }
            }
        }
        let unmatched = Unmatched(views.map(\.look), silent: failures.count - before, hasModules: !modules.isEmpty)
        state.withLock { $0.unmatched = unmatched }
        if isFound {
            // Nor in other modules, which a host may have for devices that it has not.
            for failure in failures[before...] {
                environment.logger.debug("a module was not searched", metadata: ["reason": "\(failure)"])
            }
            failures.removeSubrange(before...)
        } else {
            failures += views.flatMap { view in view.look.failures.map { $0.error(in: view.module) } }
        }
        let slots = distinct(views.flatMap(\.look.slots))
        let counts = Dictionary(slots.map { ($0.identity, 1) }, uniquingKeysWith: +)
        return slots.map { slot in
            let token = token(in: slot)
            token.wasSeen(in: slot, isAlone: counts[slot.identity] == 1)
            return (token, token.asUsed(slot))
        }
    }

    /// Waits for this process's turn to read the card of a module that does that once. It takes seconds, in which the card is this
    /// process's: the next one would wait inside of the module, where that cannot be told from a device that hangs. The turn lasts as
    /// long as the work of this thread. Goes on without one if the wait takes half of what remains after its limit, and where the store
    /// has no turns to give.
    func takeTurn() {
        let storage = environment.storage.shared
        while !ModuleCalls.hasTurn, !ModuleEnd.isUnderWay, let deadline = ModuleCalls.deadline {
            let now = ContinuousClock.now
            guard deadline - now > settings.timeout / 2 else { return }
            do throws(ProviderError) {
                if let turn = try storage.leaseRecord(named: "card-reading") { return ModuleCalls.keep(turn) }
            } catch { return }
            usleep(20_000)
            ModuleCalls.postponeDeadline(by: .now - now)
        }
    }

    /// Leaves out tokens that another module shows as well: p11-kit is often configured with two modules for one reader.
    /// Prefers the module through which the token is used already, then the first.
    private func distinct(_ slots: [Slot]) -> [Slot] {
        let known = state.withLock { $0.tokens }
        var modules: [Slot.Identity: Module] = [:]
        for slot in slots {
            let identity = slot.identity
            if modules[identity] == nil || known[identity]?.module === slot.module { modules[identity] = slot.module }
        }
        // Without a serial number it may be another token.
        return slots.filter { $0.identity.serial.isEmpty || modules[$0.identity] === $0.module }
    }

    /// The objects that were found on the tokens of one module.
    struct Listing: Sendable {
        /// Each with its chain.
        var found: [(found: Found, chain: [X509Certificate])] = []
        var failures: [ProviderError] = []
        /// Other objects than identities: in words, and by their URIs.
        var remarks: [String] = []
        var otherObjects: [String] = []
    }

    /// Reads the visible objects of each token.
    func list(_ present: [(Token, Slot)]) -> Listing {
        let modules = state.withLock(\.modules) ?? []
        let visits = modules.compactMap { module in
            let tokens = present.filter { module.isStarted(as: $0.0.module) }
            return tokens.isEmpty ? nil : (module: module, item: tokens)
        }
        var all = Listing()
        let listings = visit(visits, &all.failures) { [self] _, tokens throws(ProviderError) in
            tokens.reduce(into: Listing()) { list($1.0, $1.1, &$0) }
        }
        for listing in listings {
            all.found += listing.found
            all.failures += listing.failures
            all.remarks += listing.remarks
            all.otherObjects += listing.otherObjects
        }
        return all
    }

    private func list(_ token: Token, _ slot: Slot, _ listing: inout Listing) {
        let contents = read(token, slot, &listing.failures) { reader, contents throws(CryptokiError) in
            var issuers = TokenReader.Issuers()
            let found = try contents.candidates.map { candidate throws(CryptokiError) in
                (
                    found: Found(candidate: candidate, token: token),
                    chain: try reader.chain(of: candidate.certificate, &issuers)
                )
            }
            // A remark that cannot be made does not fail the listing.
            return Listing(
                found: found, remarks: (try? reader.remarks(on: contents, for: settings.uri)) ?? [],
                otherObjects: (try? reader.otherObjects(than: contents.candidates, for: settings.uri)) ?? [])
        }
        guard let contents else { return }
        listing.found += contents.found
        listing.remarks += contents.remarks
        listing.otherObjects += contents.otherObjects
        if contents.found.isEmpty, contents.remarks.isEmpty, contents.otherObjects.isEmpty {
            let uri = PKCS11URI.text(of: slot.token)
            listing.remarks.append(
                "The token '\(token.displayName)' has no object that \(settings.names.uri) matches: \(uri)")
        }
    }

    /// Calls `body` with each of the modules: where there are several at the same time, and for half of the timeout, so
    /// that one that hangs hides nothing in the others.
    private func visit<Item: Sendable, T: Sendable>(
        _ visits: [(module: ModuleReference, item: Item)], _ failures: inout [ProviderError],
        _ body: @escaping @Sendable (ModuleReference, Item) throws(ProviderError) -> T
    ) -> [T] {
        var results: [Result<T, ProviderError>] = []
        if visits.count == 1 {
            results = visits.map { visit in
                Result { () throws(ProviderError) in try body(visit.module, visit.item) }
            }
        } else {
            let answers = visits.map { visit in
                let answer = Answer<Result<T, ProviderError>>()
                visit.module.visit { () throws(ProviderError) in
                    try body(visit.module, visit.item)
                } completion: {
                    answer.give($0)
                }
                return answer
            }
            results = answers.map { $0.wait() }
        }
        return results.compactMap { result in
            switch result {
            case .success(let value): return value
            case .failure(let error):
                failures.append(error)
                return nil
            }
        }
    }

    /// The tokens of one module.
    private struct View: Sendable {
        let reference: ModuleReference
        let module: Module
        var look: Slot.Look
        /// The start of the module that the look is of.
        let generation: Int
        /// Whether there may be a token that it shows only after another start, or some time later.
        let mayHide: Bool
    }

    /// Calls `body`, and says which module an error is of.
    private func describing<T>(
        _ module: Module, _ body: () throws(CryptokiError) -> T
    ) throws(ProviderError) -> T {
        do throws(CryptokiError) { return try body() } catch {
            // A module that starts without its tokens may not start at all.
            let isAway = error.function == "C_Initialize" && state.withLock { !$0.tokens.isEmpty }
            throw ProviderError(
                isAway ? .tokenNotPresent : .unavailable, "The PKCS#11 module '\(module.name)' failed (\(error)).",
                nativeCode: Int(clamping: error.code), underlying: error)
        }
    }

    /// Looks for tokens that the URI matches. If one is missing that was there before, the module may have to be started again
    /// to see it.
    private func look(at module: Module, _ reference: ModuleReference) throws(CryptokiError) -> View {
        let generation = module.generation
        var look = try Slot.look(at: module, for: settings.uri)
        let missing = state.withLock(\.tokens).filter { identity, token in
            token.module === module && !(look.slots + look.others).contains { $0.identity == identity }
        }
        if !missing.isEmpty {
            missing.values.forEach { $0.lose() }
            if try module.startAgainToFind(
                beside: look.slots + look.others, in: generation, isCertain: false)
            {
                look = try Slot.look(at: module, for: settings.uri)
            }
            // Some modules have nothing else to say of a token that is gone.
            look.failures.removeAll { $0.cause.isUnspecific }
        }
        return View(
            reference: reference, module: module, look: look, generation: generation,
            mayHide: missing.isEmpty && look.slots.isEmpty && look.isFixed)
    }

    /// Looks for a token that a module may hide. SoftHSM does not see one that another process is just writing to, and one
    /// that is new only when it starts.
    private func lookAgain(after view: View) throws(CryptokiError) -> View {
        var (view, generation) = (view, view.generation)
        for pause: useconds_t in [0, 50_000, 200_000] where view.look.slots.isEmpty {
            usleep(pause)
            _ = try view.module.startAgainToFind(
                beside: view.look.slots + view.look.others, in: generation, isCertain: false)
            generation = view.module.generation
            view.look = try Slot.look(at: view.module, for: settings.uri)
        }
        return view
    }

    private func modules() throws(ProviderError) -> [ModuleReference] {
        let (known, isShutDown) = state.withLock { ($0.modules, $0.isShutDown) }
        if isShutDown { throw .modulesEnded }
        if let known { return known }
        let loaded = try ModuleLoader.modules(
            for: settings.uri, path: settings.modulePath, timeout: settings.timeout)
        // A module may be installed later.
        guard !loaded.isEmpty else { return [] }
        if settings.uri.pinValue != nil { environment.logger.warning("\(TokenSettings.pinValueIsUnsafe)") }
        return state.withLock { state in
            if let modules = state.modules { return modules }
            state.modules = loaded
            return loaded
        }
    }

    private func token(in slot: Slot) -> Token {
        state.withLock { state in
            let known = state.tokens[slot.identity]
            if let known, known.module === slot.module { return known }
            // The other module that showed it does not any more.
            let supply =
                known?.pins
                ?? PINSupply(
                    source: settings.pinSource, value: settings.pinValue, secrets: environment.secrets, policy: policy,
                    isPermitted: settings.login != .never)
            let module = state.modules?.first { $0.isStarted(as: slot.module) }
            let token = Token(
                slot, use: module?.use(of: slot.module), calls: module?.calls ?? calls, pins: supply,
                pending: PendingKeys(
                    storage: environment.storage.shared, logger: environment.logger, now: environment.now),
                logsInAlways: settings.login == .always)
            if state.isShutDown { token.refuse() }
            state.tokens[slot.identity] = token
            return token
        }
    }

    // MARK: What was not found

    /// The tokens that the URI does not match: one of them may be meant.
    struct Unmatched {
        /// Their URIs. Two modules may show the same one.
        let uris: [String]
        /// The readers of those that are not initialised.
        let uninitialised: [String]
        /// Whether a module that the URI may mean has shown what it sees.
        let hasLooked: Bool
        /// How many of those modules have not.
        let silent: Int
        /// Whether there is a module at all: p11-kit often has none but the one for trust anchors.
        let hasModules: Bool
        /// The service for smart card readers, where a module needs it and it does not run.
        let missingService: String?

        /// - Parameter silent: How many modules could not be looked at.
        init(_ looks: [Slot.Look], silent: Int, hasModules: Bool = true) {
            self.hasModules = hasModules
            hasLooked = !looks.isEmpty
            self.silent = silent
            missingService = looks.lazy.compactMap(\.missingService).first
            var seen = Set<String>()
            uris = looks.flatMap(\.others).map { PKCS11URI.text(of: $0.token) }.filter { seen.insert($0).inserted }
            uninitialised = looks.flatMap(\.uninitialised)
        }

        /// The tokens, for a message; `nil` without any.
        var list: String? {
            let all =
                uris.map { "'\($0)'" }
                + uninitialised.map {
                    $0.isEmpty ? "an uninitialised one" : "an uninitialised one in the reader '\($0)'"
                }
            guard !all.isEmpty else { return nil }
            let named = all.prefix(TokenReader.maximumRemarks)
            return named.joined(separator: ", ")
                + (all.count > named.count ? ", and \(all.count - named.count) more" : "")
        }
    }

    /// The remark of a listing if the URI matches no token.
    var remarkOnNoToken: String {
        let unmatched = state.withLock(\.unmatched)
        return "No token matches '\(DisplayText.visible(settings.uri.text))'. "
            + (unmatched.hasModules
                ? unmatched.list.map { "Present: \($0)." } ?? "No other token is present." : Self.noModule)
    }

    private static let noModule =
        "p11-kit has no module for tokens; install the one of the token, or set 'module-path' ('p11-kit list-modules' "
        + "shows those that p11-kit has)."

    /// Whether a token may be missing since no service for smart card readers runs.
    var lacksReaderService: Bool { state.withLock { $0.unmatched.missingService != nil } }

    /// Returns the error for a URI that matches no token.
    ///
    /// - Parameter failures: The failures of modules and readers. Some of a host's modules are for devices that it does not
    ///   have: one that does not start says nothing of a token that others would show.
    func noToken(_ failures: [ProviderError]) -> ProviderError {
        guard let first = failures.first else { return tokenNotPresent() }
        let unmatched = state.withLock(\.unmatched)
        guard unmatched.hasLooked, failures.count == unmatched.silent,
            failures.allSatisfy({ $0.code == .unavailable })
        else { return first }
        var error = tokenNotPresent()
        let reasons = failures.prefix(TokenReader.maximumRemarks).map(\.message)
        error.message += " Not searched: \(reasons.joined(separator: " "))"
        return error
    }

    func tokenNotPresent() -> ProviderError {
        let modules = state.withLock { state in state.tokens.values.map(\.module) }
        let others =
            modules.first.flatMap { module in (try? Slot.look(at: module)).map { module.tokensInUse(of: $0.slots) } }
            ?? []
        if let missing = state.withLock(\.unmatched.missingService) {
            return ProviderError(
                .tokenNotPresent,
                "No token matches '\(DisplayText.visible(settings.uri.text))', and the smart card service is not "
                    + "running (\(missing)); start pcscd."
            ).naming(others)
        }
        let unmatched = state.withLock(\.unmatched)
        guard unmatched.hasModules else {
            return ProviderError(
                .tokenNotPresent,
                "No token matches '\(DisplayText.visible(settings.uri.text))'. \(Self.noModule)")
        }
        // Some modules always have such a one.
        let steps =
            ["insert it"] + (unmatched.uninitialised.isEmpty ? [] : ["initialise it with its own tool"])
            + (unmatched.list == nil ? [] : ["correct \(settings.names.uri)"])
        let present = unmatched.list.map { " Present: \($0)." } ?? ""
        return ProviderError(
            .tokenNotPresent,
            "No token matches '\(DisplayText.visible(settings.uri.text))'; \(steps.joined(separator: ", or ")).\(present)"
        ).naming(others)
    }
}
