public import CertificateProviding

/// The exit statuses of `certprov`, after sysexits(3), one for each kind of error. For other commands too, so that scripts find the
/// same ones.
public enum ExitStatus: Int32, Sendable {
    /// EX_OK.
    case done = 0
    /// The answer to a question is negative, which is not an error.
    case no = 1
    /// EX_USAGE: the command line is wrong.
    case usage = 64
    /// EX_DATAERR: the input is wrong.
    case data = 65
    /// EX_NOINPUT: the input does not exist.
    case noInput = 66
    /// EX_UNAVAILABLE: a server or a token is not there.
    case unavailable = 69
    /// EX_SOFTWARE: an internal error, or an unknown code.
    case software = 70
    /// EX_CANTCREAT: an output or a stored entry cannot be written.
    case cannotCreate = 73
    /// EX_IOERR: the store cannot be read.
    case inputOutput = 74
    /// EX_TEMPFAIL: try again later.
    case tryAgain = 75
    /// EX_PROTOCOL: the server does not keep to its protocol, or is not trusted.
    case `protocol` = 76
    /// EX_NOPERM: a secret is wrong, or the consent is missing.
    case denied = 77
    /// EX_CONFIG: the configuration is wrong.
    case configuration = 78

    /// The status for an error code; ``software`` for an unknown one, such as a plugin's own.
    public init(_ code: ProviderError.Code) {
        self = Self.byCode[code] ?? .software
    }

    private static let byCode: [ProviderError.Code: ExitStatus] = [
        .malformedData: .data, .unsupportedAlgorithm: .data, .keyMismatch: .data,
        .documentNotSignable: .data, .certificateNotUsable: .data,
        .usage: .usage,
        .fileNotFound: .noInput, .notFound: .noInput, .expired: .noInput,
        .unavailable: .unavailable, .tokenNotPresent: .unavailable,
        .internal: .software, .providerError: .software,
        .alreadyExists: .cannotCreate, .storeWriteFailed: .cannotCreate, .deleteFailed: .cannotCreate,
        .storeReadFailed: .inputOutput,
        .pending: .tryAgain, .timedOut: .tryAgain, .operationNotAllowed: .tryAgain,
        .protocolError: .protocol, .serverNotTrusted: .protocol,
        .wrongPassword: .denied, .pinIncorrect: .denied, .pinFinalTry: .denied, .pinLocked: .denied,
        .rejected: .denied, .interactionRequired: .denied, .userCancelled: .denied, .vaultLocked: .denied,
        .vaultDestroyed: .denied,
        .configurationMissing: .configuration, .configurationInvalid: .configuration,
        .unsupportedParameter: .configuration, .noCertificateProvider: .configuration,
    ]
}

extension ProviderError.Code {
    /// The command line is wrong. Used by commands only, not by providers.
    public static let usage = Self(rawValue: "usage")
}
