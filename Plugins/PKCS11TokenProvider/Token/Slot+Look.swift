import CP11Kit
import CertificateProviding
import Glibc

extension Slot {
    /// The tokens in the slots of a module at one moment.
    struct Look: Sendable {
        /// The initialised tokens that are looked for.
        var slots: [Slot] = []
        /// The initialised tokens that are not looked for.
        var others: [Slot] = []
        /// The readers with a token that has not been initialised yet.
        var uninitialised: [String] = []
        /// The failures of single readers: a broken one hides no other.
        var failures: [Failure] = []
        /// Whether there are tokens, and none that could be taken out.
        var isFixed = false
        /// What does not run of that which a module for smart card readers needs: it has no slot at all then.
        var missingService: String?

        /// - Throws: If there is no slot, the failure of a reader, unless its token may merely be gone.
        var slotsOrFailure: [Slot] {
            get throws(CryptokiError) {
                if slots.isEmpty, let failure = failures.last(where: { !$0.cause.endsConnection }) {
                    throw failure.cause
                }
                return slots
            }
        }
    }

    /// A reader that cannot be looked at.
    struct Failure: Sendable {
        /// The module's name for the reader, if it has one.
        let reader: String
        let cause: CryptokiError
    }

    /// Looks at the slots of a module. Blocks.
    ///
    /// - Parameter uri: Which tokens are looked for.
    static func look(at module: Module, for uri: PKCS11URI? = nil) throws(CryptokiError) -> Look {
        let generation = module.generation
        do throws(CryptokiError) { return try lookOnce(at: module, for: uri) } catch {
            try module.restart(after: error, in: generation)
            return try lookOnce(at: module, for: uri)
        }
    }

    private static func lookOnce(at module: Module, for uri: PKCS11URI?) throws(CryptokiError) -> Look {
        try module.control("C_GetSlotList") { () throws(CryptokiError) in try lookNow(at: module, for: uri) }
    }

    /// On the control thread.
    private static func lookNow(at module: Module, for uri: PKCS11URI?) throws(CryptokiError) -> Look {
        let ids = try presentSlots(of: module)
        var look = Look()
        look.isFixed = !ids.isEmpty
        if ids.isEmpty, try allSlots(of: module).isEmpty { look.missingService = ReaderService.missing }
        for id in ids {
            var info = CK_SLOT_INFO()
            var token = CK_TOKEN_INFO()
            do throws(CryptokiError) {
                try module.call("C_GetSlotInfo") { $0.C_GetSlotInfo?(id, &info) }
                let isRemovable = info.flags & UInt(CKF_REMOVABLE_DEVICE) != 0
                if isRemovable { look.isFixed = false }
                token = try tokenInfo(of: module, in: id, isFixed: !isRemovable)
            } catch {
                if error.isOfNoToken { continue }
                look.failures.append(Failure(reader: text(info.slotDescription), cause: error))
                continue
            }
            guard token.flags & UInt(CKF_TOKEN_INITIALIZED) != 0 else {
                look.uninitialised.append(DisplayText.visible(text(info.slotDescription)))
                continue
            }
            let slot = Slot(module: module, id: id, token: token)
            if uri?.matches(info, token) ?? true { look.slots.append(slot) } else { look.others.append(slot) }
        }
        return look
    }

    /// On the control thread.
    ///
    /// - Parameter isFixed: Whether the token cannot be taken out, so that it is asked again where it does not answer.
    private static func tokenInfo(
        of module: Module, in id: CK_SLOT_ID, isFixed: Bool
    ) throws(CryptokiError) -> CK_TOKEN_INFO {
        func ask() throws(CryptokiError) -> CK_TOKEN_INFO {
            var token = CK_TOKEN_INFO()
            try module.call("C_GetTokenInfo") { $0.C_GetTokenInfo?(id, &token) }
            return token
        }
        for pause in isFixed ? pauses : [] {
            do throws(CryptokiError) {
                let token = try ask()
                let isInitialised = token.flags & UInt(CKF_TOKEN_INITIALIZED) != 0
                if !isInitialised || !text(token.label).isEmpty && !text(token.serialNumber).isEmpty { return token }
            } catch {
                guard error.isUnspecific else { throw error }
            }
            usleep(pause)
        }
        return try ask()
    }

    /// How long to wait, in microseconds, before another look for a token that cannot be taken out. SoftHSM does not show
    /// one while another process writes to it, or shows it without its label or serial number: 40 ms were measured on a
    /// busy machine.
    static let pauses: [useconds_t] = [5_000, 20_000]

    /// Returns all slots, also those without a token.
    private static func allSlots(of module: Module) throws(CryptokiError) -> [CK_SLOT_ID] {
        try module.list("C_GetSlotList", maximum: 1024) { $0.C_GetSlotList?(CK_BBOOL(CK_FALSE), $1, $2) }
    }

    private static func presentSlots(of module: Module) throws(CryptokiError) -> [CK_SLOT_ID] {
        try module.list("C_GetSlotList", maximum: 1024) { $0.C_GetSlotList?(CK_BBOOL(CK_TRUE), $1, $2) }
    }
}

extension Slot.Failure {
    func error(in module: Module) -> ProviderError {
        let reader = reader.isEmpty ? "A reader" : "The reader '\(DisplayText.visible(reader))'"
        // Some modules have nothing else to say of a token that is gone.
        return ProviderError(
            cause.isUnspecific ? .tokenNotPresent : .unavailable,
            "\(reader) of the PKCS#11 module '\(module.name)' failed (\(cause)); check the reader and its token.",
            nativeCode: Int(clamping: cause.code), underlying: cause)
    }
}

extension CryptokiError {
    /// Whether the failure means that the slot holds no token: it was pulled out, or is not readable.
    fileprivate var isOfNoToken: Bool {
        [CKR_TOKEN_NOT_PRESENT, CKR_TOKEN_NOT_RECOGNIZED, CKR_DEVICE_REMOVED, CKR_SLOT_ID_INVALID].contains(code)
    }
}
