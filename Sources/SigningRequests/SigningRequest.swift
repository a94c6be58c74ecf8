public import CertificateProviding
import Crypto

/// A request for a signature, as the calling application makes it. Its URL goes to the signer by any carrier, and ``SigningReply``
/// reads the answer.
public struct SigningRequest: Sendable {
    /// The kind of signature.
    public var operation: SigningOperation
    /// The PDF, or the challenge: at most 4,096 bytes, which are signed as they are.
    public var data: [UInt8]
    /// The service that asks. The person sees it beside the name that the signer has for the client.
    public var serviceName: String
    /// The number of the client in the signer's registry.
    public var clientID: UInt32
    /// The logo of the service.
    public var logo: RequestLogo
    /// The name of the document, for the person.
    public var documentName: String?
    /// The code of the person: needed for a PDF.
    public var userCode: String?
    /// The caller's number of the request, for the person and the signer's journal.
    public var requestID: String?
    /// The scheme of the reply's URL; `nil` for `sima`.
    public var returnScheme: String?

    /// The most bytes of a challenge.
    package static let maximumChallenge = 4096

    /// Creates a request. ``url(key:)`` checks it.
    public init(
        _ operation: SigningOperation, _ data: [UInt8], serviceName: String, clientID: UInt32,
        logo: RequestLogo = .blank, documentName: String? = nil, userCode: String? = nil, requestID: String? = nil,
        returnScheme: String? = nil
    ) {
        (self.operation, self.data, self.serviceName, self.clientID) = (operation, data, serviceName, clientID)
        (self.logo, self.documentName, self.userCode) = (logo, documentName, userCode)
        (self.requestID, self.returnScheme) = (requestID, returnScheme)
    }

    /// Returns the URL of the request: the only item that the signer relies on is the data.
    ///
    /// - Parameter key: The client's key, as bytes of UTF-8.
    /// - Throws: For a request that each signer would refuse by its form, an error whose reason is the signer's code: `usage`, or
    ///   `malformedData` for a challenge that is too long.
    public func url(key: SecretBytes) throws(ProviderError) -> RequestURL {
        guard !data.isEmpty else { throw ResponseCode.emptyData.mistake() }
        guard operation != .signChallenge || data.count <= Self.maximumChallenge else {
            throw ResponseCode.challengeProcessingError.mistake("It has \(data.count) bytes.")
        }
        guard !serviceName.isBlank else { throw ResponseCode.emptyService.mistake() }
        guard operation != .signPDF || userCode?.isBlank == false else { throw ResponseCode.emptyUserCode.mistake() }
        guard returnScheme.map({ RequestURL.isScheme($0) }) != false else {
            throw ResponseCode.wrongOperationType.mistake("The scheme of the reply is not a scheme.")
        }
        var items: [RequestURL.Item] = []
        func add(_ name: String, _ value: String?) { if let value { items.append(.init(name, value)) } }
        add("scheme", returnScheme)
        add(operation.dataItem, data.base64)
        if operation == .signPDF { add("document-name", documentName) }
        add("service-name", serviceName)
        add("client-id", "\(clientID)")
        add("signature", Self.authenticationCode(of: data, key: key).base64)
        add("service-logo", logo.url)
        add("user-code", userCode)
        add("request-id", requestID)
        return RequestURL(scheme: "sima", host: operation.rawValue, items: items)
    }

    /// HMAC-SHA256 over the 32 bytes of the SHA-256 of the data.
    package static func authenticationCode(of data: [UInt8], key: SecretBytes) -> [UInt8] {
        let key = key.withUnsafeBytes { SymmetricKey(data: $0) }
        return Array(HMAC<SHA256>.authenticationCode(for: Array(SHA256.hash(data: data)), using: key))
    }
}

extension String {
    /// Whether there is nothing to see.
    package var isBlank: Bool { allSatisfy(\.isWhitespace) }
}
