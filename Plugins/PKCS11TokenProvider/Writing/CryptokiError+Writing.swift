import CP11Kit
import CertificateProviding

extension ProviderError {
    /// Translates a failed PKCS#11 call for a caller who wanted to change objects on the token.
    init(writing error: CryptokiError, token: String) {
        let (code, sentence): (Code, String)
        switch error.code {
        case CKR_TOKEN_WRITE_PROTECTED, CKR_SESSION_READ_ONLY, CKR_ACTION_PROHIBITED, CKR_ATTRIBUTE_READ_ONLY:
            (code, sentence) = (
                .storeWriteFailed,
                "The token '\(token)' is write-protected, or does not permit this; check its settings"
            )
        case CKR_DEVICE_MEMORY:
            (code, sentence) = (
                .storeWriteFailed, "The token '\(token)' is full; delete objects that are no longer needed"
            )
        case CKR_TEMPLATE_INCONSISTENT, CKR_TEMPLATE_INCOMPLETE, CKR_ATTRIBUTE_TYPE_INVALID,
            CKR_ATTRIBUTE_VALUE_INVALID, CKR_CURVE_NOT_SUPPORTED, CKR_DOMAIN_PARAMS_INVALID, CKR_MECHANISM_INVALID,
            CKR_MECHANISM_PARAM_INVALID, CKR_KEY_SIZE_RANGE, CKR_FUNCTION_NOT_SUPPORTED:
            (code, sentence) = (
                .unsupportedAlgorithm,
                "The token '\(token)' does not support this kind of object; use another type of key, or another token"
            )
        case CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR:
            (code, sentence) = (
                .storeWriteFailed, "The token '\(token)' cannot be written to; check the log of its driver or service"
            )
        default:
            self.init(error, token: token)
            return
        }
        self.init(code, "\(sentence) (\(error)).", nativeCode: Int(clamping: error.code), underlying: error)
    }
}

extension CryptokiError {
    /// Whether the module may take it when it is asked in other words.
    var isAboutTemplate: Bool {
        switch code {
        case CKR_TEMPLATE_INCONSISTENT, CKR_TEMPLATE_INCOMPLETE, CKR_ATTRIBUTE_TYPE_INVALID,
            CKR_ATTRIBUTE_VALUE_INVALID, CKR_ATTRIBUTE_READ_ONLY, CKR_CURVE_NOT_SUPPORTED, CKR_DOMAIN_PARAMS_INVALID,
            CKR_MECHANISM_PARAM_INVALID:
            true
        default: false
        }
    }

    /// Whether the session goes on, and a template with fewer attributes may be taken. A person who has cancelled is not
    /// asked again.
    var permitsShorterTemplate: Bool {
        switch code {
        case CKR_CANCEL, CKR_FUNCTION_CANCELED, CKR_FUNCTION_REJECTED: false
        default: !endsConnection || isUnspecific
        }
    }
}
