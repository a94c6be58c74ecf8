package import CertificateProviding

/// A request of the other side. It is answered once; later answers are ignored.
package struct IncomingRequest: Sendable {
    package let id: UInt64
    /// Differs between all requests of the channel; the other side may use an id again.
    let number: UInt64
    package let name: String
    package let message: Message
    private let channel: MessageChannel

    init(id: UInt64, number: UInt64, name: String, message: Message, channel: MessageChannel) {
        (self.id, self.number, self.name, self.message, self.channel) = (id, number, name, message, channel)
    }

    package func answer(_ result: some Encodable) {
        guard let line = Message.result(id, result) else {
            return fail(
                WireError(code: ProviderError.Code.internal.rawValue, message: "The answer is too long."))
        }
        channel.respond(id, number: number, line)
    }

    package func answer(_ result: Result<some Encodable, ProviderError>) {
        switch result {
        case .success(let value): answer(value)
        case .failure(let error): fail(error)
        }
    }

    package func fail(_ error: ProviderError) { fail(WireError(error)) }

    /// Says that this side does not know the request.
    package func refuse() {
        fail(WireError(code: WireError.unsupported, message: "The request '\(name)' is not supported."))
    }

    private func fail(_ error: WireError) {
        var error = error
        // A code is short; a message may quote what came from elsewhere.
        error.message = String(error.message.prefix(8192))
        channel.respond(id, number: number, Message.failure(id, error))
    }
}

/// Handles the messages of a ``MessageChannel``. Called on its thread, which must not be blocked.
package protocol MessageHandler: AnyObject, Sendable {
    func receive(_ request: IncomingRequest)
    func receive(notice name: String, _ message: Message)
    /// The bytes of one of the further descriptors; none at its end.
    func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32)
    /// A request was cancelled, and the other side has not answered within ``MessageChannel/grace``.
    func cancellationWasIgnored(_ request: String)
    /// The channel has failed. Returns the error for the requests that wait, and may look for the reason for a short time.
    func explain(_ error: ProviderError) -> ProviderError
    /// The last call. The descriptors are closed, but for the further ones.
    func ended(_ error: ProviderError)
}
