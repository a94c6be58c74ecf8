import CTSS
import CertificateProviding

/// A response code of the TPM, or of a layer of libtss2 between it and this process.
struct TPMFailure: Error {
    let code: TSS2_RC
    /// The command or function that failed.
    let function: String
    /// Which authorisation it is about, if it is about one.
    var authorisation = Authorisation.owner

    enum Authorisation { case owner, endorsement, key }

    /// - Throws: The failure, for another code than success.
    static func check(_ code: TSS2_RC, _ function: String) throws(TPMFailure) {
        if code != TSS2_RC(TSS2_RC_SUCCESS) { throw TPMFailure(code: code, function: function) }
    }

    /// The failure for bytes that a structure does not have, as `TSS2_MU_RC_BAD_SIZE` says it.
    static func malformed(_ function: String) -> TPMFailure {
        TPMFailure(code: unmarshalling << 16 | TSS2_RC(TSS2_BASE_RC_BAD_SIZE), function: function)
    }

    /// The layer that reports it (TSS 2.0 Overview, section 3.10).
    private var layer: UInt32 { code >> 16 & 0xff }
    private static let (unmarshalling, transport, resourceManager): (UInt32, UInt32, UInt32) = (9, 10, 11)

    /// Whether the TPM was not reached: a new connection may do better.
    var isOfConnection: Bool { [Self.transport, Self.resourceManager].contains(layer) && kind == nil }

    /// Whether the structure cannot be read.
    private var isOfForm: Bool { layer == Self.unmarshalling }

    /// Whether what the TPM was given is the reason, and not its state. libtpms reports a damaged padding as a failure of its own.
    var isOfInput: Bool { isOfForm || kind.map { $0.rawValue < Kind.initialize.rawValue || $0 == .failure } ?? false }

    /// Whether the TPM has counted a wrong authorisation.
    static func countsTowardsLockout(_ code: Int) -> Bool {
        TPMFailure(code: TSS2_RC(truncatingIfNeeded: code), function: "").kind == .authFail
    }

    /// The error for a key with an authorisation.
    static func password(_ tpm: String, _ reason: String, nativeCode: Int? = nil) -> ProviderError {
        ProviderError(
            .unsupportedAlgorithm,
            "\(tpm) rejects the empty password of the key, or of the parent at its handle; make one without a password. (\(reason))",
            nativeCode: nativeCode)
    }

    /// The error for a key of another TPM.
    static func anotherTPM(_ tpm: String, _ reason: String = "TPM2_Load", nativeCode: Int? = nil) -> ProviderError {
        ProviderError(
            .notFound,
            "\(tpm) does not take the key: it was made in another TPM, or the TPM was cleared; or it is damaged. "
                + "Obtain a new identity: certprov fetch --force. (\(reason))", nativeCode: nativeCode)
    }

    /// Whether the key was made in another TPM, or in this one before it was cleared.
    var isOfAnotherTPM: Bool { kind == .integrity || kind == .binding }

    /// Whether the TPM rejects the empty authorisation of a key, or of the persistent key that it is beneath.
    var isOfPassword: Bool { authorisation == .key && (kind == .authFail || kind == .badAuth) }

    /// The error of the TPM without the number of the handle, session or parameter (TPM 2.0 Part 2, section 6.6).
    var kind: Kind? {
        guard layer != Self.transport else { return nil }
        return Kind(rawValue: code & 0x80 != 0 ? code & 0xbf : code & 0xfff)
    }

    enum Kind: UInt32 {
        // Format 1: about a handle, a session or a parameter.
        case attributes = 0x082, hash = 0x083, value = 0x084, hierarchy = 0x085, keySize = 0x087, handle = 0x08b,
            authFail = 0x08e
        case scheme = 0x092, size = 0x095, type = 0x08a, key = 0x09c, integrity = 0x09f, badAuth = 0x0a2, curve = 0x0a6
        case binding = 0x0a5
        // Warnings.
        case objectMemory = 0x902, sessionMemory = 0x903, memory = 0x904, sessionHandles = 0x905, objectHandles = 0x906
        case yielded = 0x908, testing = 0x90a, rate = 0x920, lockout = 0x921, retry = 0x922
        // Format 0.
        case initialize = 0x100, failure = 0x101
    }

    /// The response by name and layer, as `tpm2_rc_decode` shows it.
    private var text: String { "\(function): \(String(cString: Tss2_RC_Decode(code)))" }

    /// The error for users.
    ///
    /// - Parameter tpm: The TPM in messages.
    func error(_ tpm: String) -> ProviderError {
        func error(_ code: ProviderError.Code, _ sentence: String, retryAfter: Duration? = nil) -> ProviderError {
            ProviderError(code, "\(sentence) (\(text))", nativeCode: Int(self.code), retryAfter: retryAfter)
        }
        switch kind {
        case .integrity, .binding:
            return Self.anotherTPM(tpm, text, nativeCode: Int(code))
        case .lockout:
            return error(
                .unavailable,
                "\(tpm) is locked after wrong authorisations; wait, or end it with tpm2_dictionarylockout --clear-lockout.",
                retryAfter: .seconds(600))
        case .objectMemory, .sessionMemory, .memory, .sessionHandles, .objectHandles:
            return error(
                .unavailable,
                "\(tpm) has no room: other programs have left objects or sessions in it. See tpm2_getcap handles-transient, "
                    + "and remove them with tpm2_flushcontext -t. /dev/tpmrm0 and tpm2-abrmd share the room among programs.",
                retryAfter: .seconds(5))
        case .retry, .yielded, .testing, .rate:
            return error(.unavailable, "\(tpm) is busy; try again.", retryAfter: .seconds(1))
        case .failure, .initialize:
            return error(.unavailable, "\(tpm) does not work until the host is restarted.")
        case .curve, .keySize, .scheme, .hash, .value:
            return error(.unsupportedAlgorithm, "\(tpm) does not support such a key; use p256 or rsa2048.")
        case .authFail where isOfPassword, .badAuth where isOfPassword:
            return Self.password(tpm, text, nativeCode: Int(code))
        case .authFail where authorisation == .endorsement, .badAuth where authorisation == .endorsement:
            return error(
                .configurationInvalid,
                "\(tpm) has an endorsement authorisation, and attests keys without one only; remove it with "
                    + "tpm2_changeauth -c endorsement -p OLD.")
        case .attributes, .key, .type:
            return error(
                .unsupportedAlgorithm,
                "\(tpm) does not use a key so: a key signs if it has the attribute sign, and keys are made beneath a storage key."
            )
        case .authFail, .badAuth:
            return error(
                .wrongPassword,
                "\(tpm) rejects the owner authorisation; set KeyStore.tpm.owner-source to the source of the right one.")
        case .hierarchy:
            return error(
                .configurationInvalid,
                "\(tpm) has a hierarchy switched off, that of the owner or of endorsement; enable it in the firmware, or by "
                    + "tpm2_hierarchycontrol.")
        case .handle:
            return error(
                .notFound, "\(tpm) has no key at the handle of the parent; see tpm2_getcap handles-persistent.")
        case .size: return error(.malformedData, "The key for \(tpm) is damaged; replace it.")
        case nil where isOfForm: return error(.malformedData, "The key for \(tpm) is damaged; replace it.")
        case nil where isOfConnection:
            return error(
                .unavailable, "\(tpm) does not answer; look whether it, or the program that serves it, runs.",
                retryAfter: .seconds(5))
        case nil: return error(.unavailable, "\(tpm) fails.")
        }
    }
}
