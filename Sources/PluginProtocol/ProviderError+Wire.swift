package import CertificateProviding

extension ProviderError {
    /// An error of the other side.
    ///
    /// - Parameter request: The request that it answers; `nil` for an error within an answer.
    package init(_ error: WireError, of peer: String, request: String? = nil) {
        let code = Code(rawValue: error.code)
        let message = String(error.message.withVisibleControls.prefix(2048))
        if error.code == WireError.unsupported {
            let name = request.map { "the request '\($0)'" } ?? "a request"
            self.init(.unsupportedRequest, "\(peer) does not support \(name). \(message)")
            return
        }
        let text = message.isEmpty ? "\(peer) reports an error without a message." : message
        let isKnown = Code.known.contains(code)
        self.init(
            isKnown ? code : .providerError,
            isKnown ? text : "\(peer) reports the error '\(error.code.withVisibleControls.prefix(64))': \(text)",
            nativeCode: error.nativeCode,
            retryAfter: error.retryAfter.flatMap { $0 >= 0 && $0 < 1e9 ? .seconds($0) : nil },
            reason: [Reason.damaged, .busy].first { $0.rawValue == error.reason }
                ?? (code == .protocolError ? .reported : nil))
    }
}

extension ProviderError.Reason {
    /// The other side reports that a server has broken its protocol. It has itself not broken the plugin protocol.
    package static let reported = Self(rawValue: "reported")
}

extension ProviderError.Code {
    /// The other side does not know a request. Not for users: the host turns it into another error.
    package static let unsupportedRequest = Self(rawValue: WireError.unsupported)

    /// The codes that a plugin can use.
    package static let known: Set<Self> = [
        .malformedData, .unsupportedAlgorithm, .keyMismatch, .documentNotSignable,
        .certificateNotUsable, .alreadyExists, .fileNotFound, .notFound, .expired, .unavailable,
        .tokenNotPresent, .internal, .providerError, .storeWriteFailed, .deleteFailed, .storeReadFailed, .pending,
        .timedOut,
        .operationNotAllowed,
        .protocolError, .serverNotTrusted, .wrongPassword, .pinIncorrect, .pinFinalTry, .pinLocked, .rejected,
        .interactionRequired, .userCancelled, .vaultLocked, .vaultDestroyed, .configurationMissing,
        .configurationInvalid,
        .unsupportedParameter, .noCertificateProvider,
    ]
}
