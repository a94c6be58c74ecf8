package import CertificateProviding
import Crypto
import FoundationEssentials
import Signing
import SwiftASN1
import X509

/// The order in which a request is examined: the first that does not hold gives the code of the reply.
///
/// The functions are pure. Before step 11 has passed, no document is parsed, no key is touched, and no person is asked.
package struct RequestSteps: Sendable {
    /// The scheme of requests, and of replies to requests that name none.
    package static let ownScheme = "sima"
    /// More than an update with a signature and its time stamp has, in base64.
    private static let roomForUpdate = 80 << 10
    private static let known: Set = [
        "scheme", "document", "challenge", "document-name", "service-name", "client-id", "signature", "service-logo",
        "user-code", "request-id",
    ]

    package let registry: RequestRegistry
    /// Whether the request came as a URL that the desktop opens, and the reply goes that way.
    package let isHandler: Bool

    package init(_ registry: RequestRegistry, isHandler: Bool) {
        (self.registry, self.isHandler) = (registry, isHandler)
    }

    /// The longest request that can be right, in bytes, with each character percent-encoded.
    package var maximumLength: Int {
        3 * ((registry.maximumDocument + 2) / 3 * 4 + (RequestLogo.maximumSize + 2) / 3 * 4 + (64 << 10))
    }

    // MARK: - 1 to 11

    /// Examines a request until its client is authenticated.
    ///
    /// - Returns: Where the reply goes, and the request.
    package func authenticate(
        _ bytes: [UInt8]
    ) -> (address: ReplyAddress, request: Result<AuthenticRequest, RequestRefusal>) {
        guard let url = RequestURL(bytes), url.scheme == Self.ownScheme else {
            let address = ReplyAddress(scheme: Self.ownScheme, host: "unknown", isRegistered: false)
            return (address, .failure(refusal(1, .wrongOperationType, "it is not a URL with the scheme sima")))
        }
        let address = address(of: url)
        return (address, Result { () throws(RequestRefusal) in try authentic(url, address) })
    }

    private func address(of url: RequestURL) -> ReplyAddress {
        let scheme = url["scheme"].flatMap { RequestURL.isScheme($0) ? $0.lowercased() : nil } ?? Self.ownScheme
        let isHost =
            (1...64).contains(url.host.utf8.count)
            && url.host.utf8.allSatisfy { (0x61...0x7a).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2d }
        let client = url["client-id"].flatMap(Self.clientNumber).flatMap { registry.clients[$0] }
        return ReplyAddress(
            scheme: scheme, host: isHost ? url.host : "unknown",
            isRegistered: client?.returnSchemes.contains(scheme) == true)
    }

    private func authentic(
        _ url: RequestURL, _ address: ReplyAddress
    ) throws(RequestRefusal) -> AuthenticRequest {
        guard let operation = SigningOperation(rawValue: url.host) else {
            throw refusal(1, .wrongOperationType, "its host is not an operation")
        }
        guard let text = url[operation.dataItem], !text.isEmpty else {
            throw refusal(2, .emptyData, "\(operation.dataItem) is missing or empty")
        }
        let data = try data(text, of: operation)
        func present(_ name: String, _ step: Int, _ code: ResponseCode) throws(RequestRefusal) -> String {
            guard let value = url[name], !value.isBlank else {
                throw refusal(step, code, "\(name) is missing or blank")
            }
            return value
        }
        let serviceName = try present("service-name", 4, .emptyService)
        let clientID = try present("client-id", 5, .emptyClientID)
        let signature = try present("signature", 6, .emptySignature)
        var userCode = url["user-code"].flatMap { $0.isBlank ? nil : $0 }
        if operation == .signPDF { userCode = try present("user-code", 7, .emptyUserCode) }
        let logo = try logo(url["service-logo"] ?? "")

        // Step 11: the same work for an unknown client.
        let client = Self.clientNumber(clientID).flatMap { registry.clients[$0] }
        let digest = SHA256.hash(data: data)
        let key = client?.key.withUnsafeBytes { SymmetricKey(data: $0) } ?? SymmetricKey(data: [0])
        let isAuthentic = HMAC<SHA256>.isValidAuthenticationCode(
            signature.strictBase64 ?? [], authenticating: Data(digest), using: key)
        let names = url.items.map(\.name).filter(Self.known.contains)
        let isOnce = Set(names).count == names.count
        let mayReply = !isHandler || address.isRegistered
        guard let client, isAuthentic, isOnce, client.operations.contains(operation), mayReply else {
            let reason =
                if client == nil { "the client is not in the registry" } else if !isAuthentic {
                    "the HMAC is not that of the client's key over the SHA-256 of the data"
                } else if !isOnce { "an item is there twice" } else if mayReply {
                    "the client may not ask for \(operation.rawValue)"
                } else { "the client has no such return scheme" }
            throw refusal(11, .validateRequestError, reason)
        }
        return AuthenticRequest(
            operation: operation, client: client, data: data, digest: Array(digest).hexEncoded, logo: logo,
            serviceName: serviceName, documentName: url["document-name"]?.lastPathComponent,
            requestID: url["request-id"].flatMap { $0.isEmpty ? nil : $0 }, userCode: userCode)
    }

    private func data(_ text: String, of operation: SigningOperation) throws(RequestRefusal) -> [UInt8] {
        let limit = operation == .signPDF ? registry.maximumDocument : SigningRequest.maximumChallenge
        guard text.decodedBase64Size <= limit else {
            throw refusal(3, operation.processingError, "the \(operation.dataItem) has more than \(limit) bytes")
        }
        guard let data = text.strictBase64 else {
            throw refusal(3, operation.processingError, "the \(operation.dataItem) is not base64")
        }
        return data
    }

    private func logo(_ text: String) throws(RequestRefusal) -> RequestLogo {
        func prefix(_ kind: RequestLogo.Kind) -> String { "data:image/\(kind.rawValue);base64," }
        guard let kind = RequestLogo.Kind.allCases.first(where: { text.hasPrefix(prefix($0)) }) else {
            throw refusal(8, .wrongLogoFormat, "service-logo is not a PNG, JPEG, GIF or WebP image as data: URL")
        }
        let base64 = String(text.dropFirst(prefix(kind).count))
        guard base64.decodedBase64Size <= RequestLogo.maximumSize else {
            throw refusal(9, .wrongLogoSize, "service-logo has more than \(RequestLogo.maximumSize) bytes")
        }
        guard let bytes = base64.strictBase64, kind.fits(bytes) else {
            throw refusal(10, .wrongLogoFormat, "service-logo is not base64 of a \(kind.rawValue) image")
        }
        return RequestLogo(kind: kind, bytes: bytes)
    }

    private static func clientNumber(_ text: String) -> UInt32? {
        guard text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return UInt32(text)
    }

    // MARK: - 12 to 14

    /// Examines what an authenticated request asks for.
    ///
    /// - Parameters:
    ///   - wasSigned: Whether this client's data was signed in the last day, or a signature was interrupted.
    ///   - signer: The certificate that would sign; `nil` if it is not at hand, which step 15 answers.
    ///   - address: Where the reply goes.
    /// - Returns: How many pages a document says that it has.
    package func examine(
        _ request: AuthenticRequest, to address: ReplyAddress, wasSigned: Bool, signer: X509Certificate?
    ) throws(RequestRefusal) -> Int? {
        if request.isUnattended, wasSigned { throw refusal(12, .validateRequestError, Self.repetition) }
        if let code = request.userCode, !isUserCode(code, of: signer) {
            throw refusal(13, .wrongUserCode, "user-code is not the person's")
        }
        let code = request.operation.processingError
        switch request.operation {
        case .signChallenge:
            if let meaning = ChallengeFilter.refusal(of: request.data) {
                throw refusal(14, code, "the challenge \(meaning)")
            }
            return nil
        case .signPDF:
            let document: PDFToSign
            do throws(ProviderError) {
                document = try PDFToSign(SigningContent(request.data), hasTimeStamp: registry.hasTimeStamp)
            } catch {
                throw refusal(14, code, "the document cannot be signed: \(error.message)")
            }
            guard fits([.init("document", request.data.base64)], address, room: Self.roomForUpdate) else {
                throw refusal(
                    14, code, "the signed document does not fit into a URL of \(ReplyOpener.longestURL) bytes")
            }
            return document.claimedPages
        }
    }

    /// Why data is not signed without a person.
    static let repetition = "the data was signed in the last day, and no person approves it again"

    /// Whether a reply with these items can be opened, if it must be.
    package func fits(_ items: @autoclosure () -> [RequestURL.Item], _ address: ReplyAddress, room: Int = 0) -> Bool {
        guard isHandler else { return true }
        let reply = RequestURL(
            scheme: address.scheme, host: address.host, items: [.init("status", "success")] + items())
        return reply.text.utf8.count + room <= ReplyOpener.longestURL
    }

    /// Whether a code is the person's: the one that is configured, else the subject's serialNumber, whole or after a prefix such as
    /// `PNOAZ-` (ETSI EN 319 412-1, section 5.1.3). Without a certificate, step 15 refuses.
    private func isUserCode(_ code: String, of signer: X509Certificate?) -> Bool {
        if let configured = registry.userCode { return code == configured }
        guard let signer else { return true }
        return Self.serialNumbers(of: signer).contains { serial in
            serial == code || serial.wholeMatch(of: /[A-Z]{5}-(.+)/).map { $0.output.1 == code } == true
        }
    }

    /// Whether a certificate has a person's code, for a registry without one.
    package static func hasUserCode(_ leaf: X509Certificate) -> Bool {
        serialNumbers(of: leaf).contains { !$0.isBlank }
    }

    private static func serialNumbers(of leaf: X509Certificate) -> [String] { subject([2, 5, 4, 5], of: leaf) }

    /// The values of an attribute of a certificate's subject.
    private static func subject(_ attribute: ASN1ObjectIdentifier, of leaf: X509Certificate) -> [String] {
        guard let subject = try? leaf.certificate().subject else { return [] }
        return subject.flatMap { name in name.filter { $0.type == attribute }.compactMap { String($0.value) } }
    }

    /// The name of a certificate's owner: its common name, else the whole subject.
    static func name(of leaf: X509Certificate) -> String {
        subject([2, 5, 4, 3], of: leaf).last { !$0.isBlank } ?? leaf.subject
    }

    private func refusal(_ step: Int, _ code: ResponseCode, _ reason: String) -> RequestRefusal {
        RequestRefusal(step: step, code: code, reason: reason)
    }
}

extension String {
    /// The name of a file without directories, of either kind.
    fileprivate var lastPathComponent: String? {
        split { $0 == "/" || $0 == "\\" }.last.map(String.init)
    }

    /// The number of bytes that base64 of this length has, whatever the characters are.
    fileprivate var decodedBase64Size: Int {
        utf8.count * 3 / 4 - utf8.suffix(2).reversed().prefix { $0 == UInt8(ascii: "=") }.count
    }
}
