import CP11Kit
import CertificateProviding

/// A PKCS#11 function that did not return `CKR_OK`.
struct CryptokiError: Error, CustomStringConvertible {
    /// The function that failed, such as `C_Sign`.
    let function: String
    let code: CK_RV
    var origin = Origin.module

    enum Origin {
        case module
        /// The call was not made: its session is over.
        case notMade
        /// The module returned a less specific code. A later look at the token found this one.
        case inferred
        /// The session exists, but its objects have become invisible: another part of the process has logged out.
        case logout
        /// The caller gets this error. It is of a look at the slots; or a PIN went with the call, or would have gone had
        /// this not been in its way, and it is not made again by itself.
        case refusal(ProviderError)
        /// The call was not made: the module has been shut down.
        case ended
    }

    /// The error of a call that was not made for another reason than a module's.
    static func refusal(_ error: ProviderError) -> CryptokiError {
        CryptokiError(function: "", code: CKR_FUNCTION_REJECTED, origin: .refusal(error))
    }

    /// The error of every call to a module that has been shut down.
    static func ended(_ function: String) -> CryptokiError {
        CryptokiError(function: function, code: CKR_CRYPTOKI_NOT_INITIALIZED, origin: .ended)
    }

    var description: String { "\(function): \(Self.name(of: code))" }

    /// The standard's name for a return value, or its number.
    static func name(of code: CK_RV) -> String { names[code] ?? "CKR 0x" + String(code, radix: 16) }

    /// Whether the session, the object handles and the login are invalid now, and a new connection to the token may find
    /// everything again: the token was removed, reset or reinitialised, or the session is stuck in the middle of an operation.
    var endsConnection: Bool {
        switch code {
        case CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT, CKR_TOKEN_NOT_RECOGNIZED, CKR_SESSION_HANDLE_INVALID,
            CKR_SESSION_CLOSED, CKR_OBJECT_HANDLE_INVALID, CKR_KEY_HANDLE_INVALID, CKR_SLOT_ID_INVALID,
            CKR_CRYPTOKI_NOT_INITIALIZED, CKR_USER_NOT_LOGGED_IN, CKR_DEVICE_ERROR, CKR_OPERATION_ACTIVE:
            true
        default: isUnspecific
        }
    }

    /// Whether the module says that it has no such session: the handle may already be another one's.
    var isOfNoSession: Bool {
        switch origin {
        // The module still has a session that only this process has given up.
        case .logout, .notMade: false
        default: code == CKR_SESSION_HANDLE_INVALID || code == CKR_SESSION_CLOSED
        }
    }

    /// Whether the code does not say the cause. SoftHSM returns such a code for a token whose files are gone, NSS for a key
    /// that a logout has hidden.
    var isUnspecific: Bool { [CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_HOST_MEMORY].contains(code) }

    /// Whether it may be the module that has broken, where the same comes of a new session too: every login or signature
    /// fails then, until it is started again.
    var mayBeBrokenModule: Bool {
        switch origin {
        case .module, .refusal: break
        case .notMade, .inferred, .logout, .ended: return false
        }
        guard ["C_OpenSession", "C_Login", "C_SignInit", "C_Sign"].contains(function) else { return false }
        return [
            CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_SESSION_HANDLE_INVALID, CKR_SESSION_CLOSED,
        ].contains(code)
    }

    /// Whether the module may mean that the user is not logged in. A code that ends the connection for another reason does not
    /// mean that.
    var mayBeLostLogin: Bool { isRepeatable && (code == CKR_USER_NOT_LOGGED_IN || !endsConnection) }

    /// Whether a new connection may try again what has failed.
    var isRepeatable: Bool {
        switch origin {
        case .refusal, .ended: false
        default: true
        }
    }

    /// Whether nothing was asked of the token, since another part of the process has ended the session before: it has
    /// started the module again, perhaps.
    var isOvertaken: Bool {
        guard case .notMade = origin else { return false }
        return code == CKR_SESSION_CLOSED
    }

    /// Whether the call was one with a key.
    fileprivate var usesKey: Bool {
        ["C_Sign", "C_Decrypt", "C_GenerateKey"].contains { function.hasPrefix($0) }
    }

    /// Whether a key says that it is of another kind than the signature that it is asked for.
    var isOfAnotherKind: Bool {
        [CKR_KEY_TYPE_INCONSISTENT, CKR_KEY_SIZE_RANGE, CKR_DATA_LEN_RANGE].contains(code)
    }

    private static let names: [CK_RV: String] = [
        CKR_CANCEL: "CKR_CANCEL", CKR_HOST_MEMORY: "CKR_HOST_MEMORY", CKR_SLOT_ID_INVALID: "CKR_SLOT_ID_INVALID",
        CKR_GENERAL_ERROR: "CKR_GENERAL_ERROR", CKR_FUNCTION_FAILED: "CKR_FUNCTION_FAILED",
        CKR_ARGUMENTS_BAD: "CKR_ARGUMENTS_BAD", CKR_CANT_LOCK: "CKR_CANT_LOCK",
        CKR_ATTRIBUTE_READ_ONLY: "CKR_ATTRIBUTE_READ_ONLY", CKR_ATTRIBUTE_SENSITIVE: "CKR_ATTRIBUTE_SENSITIVE",
        CKR_ATTRIBUTE_TYPE_INVALID: "CKR_ATTRIBUTE_TYPE_INVALID",
        CKR_ATTRIBUTE_VALUE_INVALID: "CKR_ATTRIBUTE_VALUE_INVALID", CKR_DATA_INVALID: "CKR_DATA_INVALID",
        CKR_DATA_LEN_RANGE: "CKR_DATA_LEN_RANGE", CKR_DEVICE_ERROR: "CKR_DEVICE_ERROR",
        CKR_DEVICE_MEMORY: "CKR_DEVICE_MEMORY", CKR_DEVICE_REMOVED: "CKR_DEVICE_REMOVED",
        CKR_ENCRYPTED_DATA_INVALID: "CKR_ENCRYPTED_DATA_INVALID",
        CKR_ENCRYPTED_DATA_LEN_RANGE: "CKR_ENCRYPTED_DATA_LEN_RANGE",
        CKR_FUNCTION_CANCELED: "CKR_FUNCTION_CANCELED", CKR_FUNCTION_NOT_SUPPORTED: "CKR_FUNCTION_NOT_SUPPORTED",
        CKR_KEY_HANDLE_INVALID: "CKR_KEY_HANDLE_INVALID", CKR_KEY_SIZE_RANGE: "CKR_KEY_SIZE_RANGE",
        CKR_KEY_TYPE_INCONSISTENT: "CKR_KEY_TYPE_INCONSISTENT",
        CKR_KEY_FUNCTION_NOT_PERMITTED: "CKR_KEY_FUNCTION_NOT_PERMITTED",
        CKR_MECHANISM_INVALID: "CKR_MECHANISM_INVALID", CKR_MECHANISM_PARAM_INVALID: "CKR_MECHANISM_PARAM_INVALID",
        CKR_OBJECT_HANDLE_INVALID: "CKR_OBJECT_HANDLE_INVALID", CKR_OPERATION_ACTIVE: "CKR_OPERATION_ACTIVE",
        CKR_OPERATION_NOT_INITIALIZED: "CKR_OPERATION_NOT_INITIALIZED", CKR_PIN_INCORRECT: "CKR_PIN_INCORRECT",
        CKR_PIN_INVALID: "CKR_PIN_INVALID", CKR_PIN_LEN_RANGE: "CKR_PIN_LEN_RANGE",
        CKR_PIN_EXPIRED: "CKR_PIN_EXPIRED", CKR_PIN_LOCKED: "CKR_PIN_LOCKED",
        CKR_SESSION_CLOSED: "CKR_SESSION_CLOSED", CKR_SESSION_COUNT: "CKR_SESSION_COUNT",
        CKR_SESSION_HANDLE_INVALID: "CKR_SESSION_HANDLE_INVALID", CKR_SESSION_READ_ONLY: "CKR_SESSION_READ_ONLY",
        CKR_SIGNATURE_INVALID: "CKR_SIGNATURE_INVALID", CKR_TEMPLATE_INCOMPLETE: "CKR_TEMPLATE_INCOMPLETE",
        CKR_TEMPLATE_INCONSISTENT: "CKR_TEMPLATE_INCONSISTENT", CKR_TOKEN_NOT_PRESENT: "CKR_TOKEN_NOT_PRESENT",
        CKR_TOKEN_NOT_RECOGNIZED: "CKR_TOKEN_NOT_RECOGNIZED",
        CKR_TOKEN_WRITE_PROTECTED: "CKR_TOKEN_WRITE_PROTECTED",
        CKR_USER_ALREADY_LOGGED_IN: "CKR_USER_ALREADY_LOGGED_IN", CKR_USER_NOT_LOGGED_IN: "CKR_USER_NOT_LOGGED_IN",
        CKR_USER_PIN_NOT_INITIALIZED: "CKR_USER_PIN_NOT_INITIALIZED",
        CKR_USER_TYPE_INVALID: "CKR_USER_TYPE_INVALID",
        CKR_USER_ANOTHER_ALREADY_LOGGED_IN: "CKR_USER_ANOTHER_ALREADY_LOGGED_IN",
        CKR_USER_TOO_MANY_TYPES: "CKR_USER_TOO_MANY_TYPES", CKR_BUFFER_TOO_SMALL: "CKR_BUFFER_TOO_SMALL",
        CKR_CRYPTOKI_NOT_INITIALIZED: "CKR_CRYPTOKI_NOT_INITIALIZED",
        CKR_CRYPTOKI_ALREADY_INITIALIZED: "CKR_CRYPTOKI_ALREADY_INITIALIZED",
        CKR_FUNCTION_REJECTED: "CKR_FUNCTION_REJECTED", CKR_ACTION_PROHIBITED: "CKR_ACTION_PROHIBITED",
        CKR_DOMAIN_PARAMS_INVALID: "CKR_DOMAIN_PARAMS_INVALID", CKR_CURVE_NOT_SUPPORTED: "CKR_CURVE_NOT_SUPPORTED",
    ]
}

extension ProviderError {
    /// The error of every call after the provider, or the whole process, has begun to shut down.
    static let modulesEnded = ProviderError(
        .operationNotAllowed,
        "The PKCS#11 provider has been shut down, or this program is ending; make a new provider to use the token.")

    /// Translates a failed PKCS#11 call for the user of a token.
    init(_ error: CryptokiError, token: String) {
        if case .refusal(let refusal) = error.origin {
            self = refusal
            return
        }
        if case .ended = error.origin {
            self = .modulesEnded
            return
        }
        let (code, sentence): (Code, String) =
            switch error.code {
            case CKR_PIN_INCORRECT, CKR_PIN_INVALID:
                (
                    .pinIncorrect,
                    "The token '\(token)' rejects the PIN, which is not sent again by itself; correct it, or its source"
                )
            case CKR_PIN_LEN_RANGE:
                (.pinIncorrect, "The PIN is shorter or longer than the token '\(token)' accepts; correct its source")
            case CKR_PIN_LOCKED:
                (
                    .pinLocked,
                    "The PIN of the token '\(token)' is locked; unblock it with the PUK or SO PIN, or wait if the "
                        + "token unlocks it by itself"
                )
            case CKR_PIN_EXPIRED:
                (.rejected, "The PIN of the token '\(token)' has expired; change it with the token's own tool")
            case CKR_USER_PIN_NOT_INITIALIZED:
                (.rejected, "The token '\(token)' has no user PIN yet; set one with the token's own tool")
            case CKR_USER_NOT_LOGGED_IN:
                (.interactionRequired, "The token '\(token)' requires a PIN; configure its source")
            case CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT, CKR_TOKEN_NOT_RECOGNIZED, CKR_SLOT_ID_INVALID,
                CKR_CRYPTOKI_NOT_INITIALIZED:
                (.tokenNotPresent, "The token '\(token)' is not present; insert it")
            case CKR_SESSION_HANDLE_INVALID, CKR_SESSION_CLOSED, CKR_OBJECT_HANDLE_INVALID, CKR_KEY_HANDLE_INVALID:
                (
                    .tokenNotPresent,
                    "The token '\(token)' was removed or reset during the operation; try again"
                )
            case CKR_SESSION_COUNT:
                (
                    .unavailable,
                    "The token '\(token)' has no free session; end another program that uses it, or try again later"
                )
            case CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID, CKR_KEY_TYPE_INCONSISTENT, CKR_KEY_SIZE_RANGE,
                CKR_KEY_FUNCTION_NOT_PERMITTED:
                (
                    .unsupportedAlgorithm,
                    "The token '\(token)' does not support this operation with the key; use another key or token"
                )
            case CKR_FUNCTION_NOT_SUPPORTED where error.usesKey,
                CKR_ARGUMENTS_BAD where error.function == "C_DecryptInit":
                (
                    .unsupportedAlgorithm,
                    "The token '\(token)' does not support this operation with the key; use another key or token"
                )
            case CKR_FUNCTION_NOT_SUPPORTED:
                (
                    .unavailable,
                    "The PKCS#11 module of the token '\(token)' lacks a required function; update the module"
                )
            case CKR_FUNCTION_CANCELED, CKR_CANCEL:
                (.userCancelled, "The operation was cancelled at the token '\(token)'; try again")
            default: (.unavailable, "The token '\(token)' failed; check the log of its driver or service")
            }
        self.init(
            code, "\(sentence) (\(error)).", nativeCode: Int(clamping: error.code),
            reason: error.function == "C_Login" ? .login : nil, underlying: error)
    }
}

extension ProviderError.Reason {
    /// A login failed.
    static let login = Self(rawValue: "login")
}
