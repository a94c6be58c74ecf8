import CertificateProviding

/// The exit statuses of the command, after sysexits(3), one for each kind of error.
enum ExitStatus: Int32, Sendable {
    case done = 0
    /// The answer to a question is negative, which is not an error.
    case no = 1
    case usage = 64
    case data = 65
    case noInput = 66
    case unavailable = 69
    case software = 70
    case cannotCreate = 73
    case inputOutput = 74
    case tryAgain = 75
    case `protocol` = 76
    case denied = 77
    case configuration = 78

    /// The status for an error code; ``software`` for an unknown one, such as a plugin's own.
    init(_ code: CertificateProviderError.Code) {
        self = Self.byCode[code] ?? .software
    }

    private static let byCode: [CertificateProviderError.Code: ExitStatus] = [
        .malformedData: .data, .unsupportedAlgorithm: .data, .keyMismatch: .data,
        .documentNotSignable: .data, .certificateNotUsable: .data,
        .usage: .usage,
        .fileNotFound: .noInput, .notFound: .noInput, .expired: .noInput,
        .unavailable: .unavailable, .tokenNotPresent: .unavailable,
        .internal: .software,
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

extension CertificateProviderError.Code {
    /// The command line is wrong. Used by the command only, not by providers.
    static let usage = Self(rawValue: "usage")
}
