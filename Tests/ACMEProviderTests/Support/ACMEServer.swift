import CertificateProviding
import Crypto
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import SwiftASN1
import Synchronization
import TestSupport
import X509

/// An ACME server in memory (RFC 8555, RFC 9773). It checks each request's signature, nonce and URL, looks for http-01 answers below
/// a document root, and misbehaves on request.
final class ACMEServer: Sendable {
    /// The fate of a request.
    enum Fault: Sendable {
        case status(Int, problem: String? = nil, headers: [(String, String)] = [])
        /// The connection ends without an answer, before the request is processed or after it.
        case lostRequest, lostAnswer
        case body(String, type: String = "application/json", status: Int = 200)
        case cut
    }

    /// The issued certificate.
    enum Issue: String, Sendable, CaseIterable {
        case right, otherKey, otherNames, otherUsage, expired, future, otherSubject, notPEM, empty, leafAlone, twice
        /// The CA before the leaf; other text between the certificates; a damaged one; more than any chain has.
        case reversed, text, damaged, huge, many
    }

    struct Behaviour: Sendable {
        /// By the name of the resource, such as `newOrder`; taken from the front.
        var faults: [String: [Fault]] = [:]
        var refusedNonces = 0
        var namesNonces = true
        var terms: String?
        /// Keys by identifier. An account must be bound to one of them, if there are any.
        var externalAccounts: [String: [UInt8]] = [:]
        /// Whether a look-up by key must be bound, too.
        var bindsLookUps = false
        /// Whether the account's URL shows it.
        var showsAccounts = true
        /// How often an authorisation is looked at before it is decided, and a finished order before it has a certificate.
        var looks = 0
        var orderLooks = 0
        var retryAfter: String?
        var authorizationRetryAfter: String?
        /// Whether an order is looked at before its authorisations are, and ends without a reason.
        var decidesByOrder = false
        /// The name that authorisations are for, and how many there are of each.
        var foreignName: String?
        var authorizationCount = 1
        /// Whether each look at an authorisation shows another token and another URL.
        var changesChallenges = false
        /// The problem of every authorisation.
        var refusal: String?
        var isAuthorised = false
        var challenges = ["http-01", "dns-01", "tls-alpn-01"]
        var token: String?
        var issue = Issue.right
        /// How far its clock is ahead.
        var ahead: TimeInterval = 0
        var hasOrderList = true
        var profiles: [String: String]?
        var hasRenewalInfo = true
        /// By the identifier of the certificate; `nil` for an answer of 404.
        var window: (@Sendable (String) -> (String, String)?)?
        var renewalRetryAfter: String? = "3600"
        /// The targets of the links to alternate chains: NAME stands for the certificate. At `/alternate/NAME` is the chain to another root,
        /// at `/alternate/other` that of another certificate.
        var alternates: [String] = []
        /// Refuses orders that name the certificate to be replaced.
        var refusalOfReplaces: Fault?
        /// The origin of the URLs in the directory.
        var origin: String?
    }

    struct Order: Sendable {
        let account: String
        let identifiers: [[String: String]]
        var status = "pending"
        var authorizations: [String] = []
        var csr: [UInt8]?
        var certificate: String?
        var looks = 0
        var replaces: String?
        var profile: String?
    }
    struct Authorization: Sendable {
        let identifier: [String: String]
        let token: String
        var status = "pending"
        var isSubmitted = false
        /// The answer to device-attest-01.
        var statement: [UInt8]?
        var looks = 0
    }
    struct Account: Sendable {
        let key: [String: String]
        var status = "valid"
        var contact: [String] = []
    }
    struct State: Sendable {
        var behaviour = Behaviour()
        var nonces: Set<String> = []
        var accounts: [String: Account] = [:]
        var orders: [String: Order] = [:]
        var authorizations: [String: Authorization] = [:]
        var certificates: [String: String] = [:]
        var issued: [Certificate] = []
        var revoked: [(serial: [UInt8], reason: Int?)] = []
        /// The resources that were asked for.
        var heard: [String] = []
        var mistakes: [String] = []
        var count = 0
    }

    let state = Mutex(State())
    let network = InMemoryNetwork()
    let directoryURL = "http://127.0.0.1:14000/dir"
    let documentRoot: String
    let authority: X509Certificate
    /// The authority's certificate from another root.
    let crossCertificate: X509Certificate
    private let authorityKey = P256.Signing.PrivateKey()
    private let now: @Sendable () -> Date

    init(documentRoot: String, now: @escaping @Sendable () -> Date = { Date() }) throws {
        (self.documentRoot, self.now) = (documentRoot, now)
        let name = try DistinguishedName { CommonName("Test ACME CA") }
        let key = Certificate.PrivateKey(authorityKey)
        let root = try Certificate(
            version: .v3, serialNumber: .init(), publicKey: key.publicKey,
            notValidBefore: Date(timeIntervalSince1970: 315_532_800),
            notValidAfter: Date(timeIntervalSince1970: 7_258_118_400), issuer: name, subject: name,
            signatureAlgorithm: .ecdsaWithSHA256,
            extensions: try Certificate.Extensions {
                Critical(BasicConstraints.isCertificateAuthority(maxPathLength: nil))
                Critical(KeyUsage(keyCertSign: true))
                SubjectKeyIdentifier(keyIdentifier: Self.keyIdentifier[...])
            }, issuerPrivateKey: key)
        authority = try Self.converted(root)
        let other = Certificate.PrivateKey(P256.Signing.PrivateKey())
        crossCertificate = try Self.converted(
            Certificate(
                version: .v3, serialNumber: .init(), publicKey: key.publicKey,
                notValidBefore: Date(timeIntervalSince1970: 315_532_800),
                notValidAfter: Date(timeIntervalSince1970: 7_258_118_400),
                issuer: try DistinguishedName { CommonName("Other Root") }, subject: name,
                signatureAlgorithm: .ecdsaWithSHA256, extensions: root.extensions, issuerPrivateKey: other))
        network.listen(on: "127.0.0.1", port: 14000, group: MultiThreadedEventLoopGroup.singleton) {
            [weak self] channel in
            channel.eventLoop.makeCompletedFuture {
                try channel.pipeline.syncOperations.configureHTTPServerPipeline()
                try channel.pipeline.syncOperations.addHandler(Handler(self))
            }
        }
    }

    private static let keyIdentifier: [UInt8] = Array(1...20)
    private static func converted(_ certificate: Certificate) throws -> X509Certificate {
        var serializer = DER.Serializer()
        try serializer.serialize(certificate)
        return try X509Certificate(derRepresentation: serializer.serializedBytes)
    }

    func behave(_ change: (inout Behaviour) -> Void) { state.withLock { change(&$0.behaviour) } }
    /// The next requests to a resource have these faults.
    func fail(_ resource: String, _ faults: Fault...) { behave { $0.faults[resource, default: []] += faults } }
    var heard: [String] { state.withLock(\.heard) }
    func count(of resource: String) -> Int { heard.count { $0 == resource } }
    /// Orders that are not finished.
    var openOrders: Int {
        state.withLock { $0.orders.values.count { ["pending", "ready", "processing"].contains($0.status) } }
    }
    var issuedCount: Int { state.withLock(\.issued.count) }
    /// Violations of the protocol by the client.
    var mistakes: [String] { state.withLock(\.mistakes) }

    // MARK: - HTTP

    struct Response {
        var status = 200
        var headers: [(String, String)] = []
        var body: [UInt8] = []
        var isLost = false
        var isCut = false
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private let server: ACMEServer?
        private var head: HTTPRequestHead?
        private var body: [UInt8] = []

        init(_ server: ACMEServer?) { self.server = server }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch unwrapInboundIn(data) {
            case .head(let head): (self.head, body) = (head, [])
            case .body(let part): body += Array(part.readableBytesView)
            case .end:
                guard let head, let server else { return context.close(promise: nil) }
                let response = server.answer(head, body)
                if response.isLost { return context.close(promise: nil) }
                var headers = HTTPHeaders(response.headers)
                headers.add(name: "Content-Length", value: "\(response.body.count + (response.isCut ? 10 : 0))")
                let start = HTTPResponseHead(
                    version: .http1_1, status: .init(statusCode: response.status), headers: headers)
                context.write(wrapOutboundOut(.head(start)), promise: nil)
                context.write(
                    wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: response.body)))), promise: nil)
                let channel = context.channel
                if response.isCut {
                    context.flush()
                    return channel.close(promise: nil)
                }
                context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private func answer(_ head: HTTPRequestHead, _ body: [UInt8]) -> Response {
        let parts = head.uri.split(separator: "/").map(String.init)
        let resource = parts.first ?? ""
        return state.withLock { state in
            state.heard.append(resource)
            var response: Response
            let fault = state.behaviour.faults[resource].flatMap { $0.first }
            if fault != nil { state.behaviour.faults[resource]?.removeFirst() }
            switch fault {
            case .status(let status, let problem, let headers):
                response = Self.problem(status, problem ?? "serverInternal", "The test says so")
                if problem == nil { response.body = [] }
                response.headers += headers
            case .lostRequest: return Response(isLost: true)
            case .body(let text, let type, let status):
                response = Response(status: status, headers: [("Content-Type", type)], body: Array(text.utf8))
            case .lostAnswer:
                response = respond(head, body, parts, &state)
                response.isLost = true
            case .cut:
                response = respond(head, body, parts, &state)
                response.isCut = true
            case nil: response = respond(head, body, parts, &state)
            }
            if state.behaviour.namesNonces || resource == "newNonce" {
                let nonce = "nonce\(state.count)"
                state.count += 1
                state.nonces.insert(nonce)
                response.headers.append(("Replay-Nonce", nonce))
            }
            return response
        }
    }

    static func problem(_ status: Int, _ type: String, _ detail: String, more: [String: Any] = [:]) -> Response {
        var members: [String: Any] = ["type": "urn:ietf:params:acme:error:\(type)", "detail": detail]
        members.merge(more) { $1 }
        return Response(
            status: status, headers: [("Content-Type", "application/problem+json")],
            body: (try? JSONSerialization.data(withJSONObject: members)).map(Array.init) ?? [])
    }

    private static func json(_ members: [String: Any], status: Int = 200, _ headers: [(String, String)] = [])
        -> Response
    {
        Response(
            status: status, headers: [("Content-Type", "application/json")] + headers,
            body: (try? JSONSerialization.data(withJSONObject: members)).map(Array.init) ?? [])
    }

    // MARK: - Requests

    private struct Request {
        var payload: [String: Any]
        var isRead: Bool
        var key: [String: String]
        var account: String?
        var url: String
        var signed: Data
    }

    private let origin = "http://127.0.0.1:14000"

    private func respond(_ head: HTTPRequestHead, _ body: [UInt8], _ parts: [String], _ state: inout State) -> Response
    {
        let behaviour = state.behaviour
        let base = behaviour.origin ?? origin
        switch parts.first {
        case "dir":
            var meta: [String: Any] = [:]
            meta["termsOfService"] = behaviour.terms
            if !behaviour.externalAccounts.isEmpty { meta["externalAccountRequired"] = true }
            meta["profiles"] = behaviour.profiles
            var members: [String: Any] = ["meta": meta]
            for name in ["newNonce", "newAccount", "newOrder", "revokeCert"] { members[name] = "\(base)/\(name)" }
            if behaviour.hasRenewalInfo { members["renewalInfo"] = "\(base)/renewalInfo" }
            return Self.json(members)
        case "newNonce": return Response(status: 204)
        case "renewalInfo":
            guard parts.count == 2, let window = behaviour.window?(parts[1]) else {
                return Self.problem(404, "malformed", "No such certificate")
            }
            return Self.json(
                ["suggestedWindow": ["start": window.0, "end": window.1], "explanationURL": "https://ca.example/why"],
                behaviour.renewalRetryAfter.map { [("Retry-After", $0)] } ?? [])
        default: break
        }
        guard head.method == .POST, head.headers.first(name: "Content-Type") == "application/jose+json" else {
            return mistake("\(head.method) \(head.uri) is no signed request", &state)
        }
        let request: Request
        switch read(body, url: base + head.uri, &state) {
        case .success(let read): request = read
        case .failure(let refusal): return refusal.response
        }
        switch parts[0] {
        case "newAccount": return newAccount(request, &state)
        case "account": return account(request, parts, &state)
        case "newOrder": return newOrder(request, base, &state)
        case "orders":
            let all = state.orders.filter { $0.value.account == request.account }.keys.sorted()
            return Self.json(["orders": all.map { "\(base)/order/\($0)" }])
        case "order": return order(request, parts[1], base, &state)
        case "authz": return authorization(request, parts[1], base, &state)
        case "chall": return challenge(request, parts[1], base, &state)
        case "finalize": return finalize(request, parts[1], base, &state)
        case "cert":
            guard let chain = state.certificates[parts[1]] else {
                return Self.problem(404, "malformed", "No such certificate")
            }
            let links = behaviour.alternates.map {
                ("Link", "<\($0.replacing("NAME", with: parts[1]))>;rel=\"alternate\"")
            }
            return Response(
                headers: [("Content-Type", "application/pem-certificate-chain")] + links, body: Array(chain.utf8))
        case "alternate":
            // The first of all orders is another one.
            let first = state.certificates.min { Int($0.key.dropFirst()) ?? 0 < Int($1.key.dropFirst()) ?? 0 }
            guard let leaf = (state.certificates[parts[1]] ?? (parts[1] == "other" ? first?.value : nil)),
                let end = leaf.range(of: "-----END CERTIFICATE-----\n")
            else { return Self.problem(404, "malformed", "No such certificate") }
            return Response(
                headers: [("Content-Type", "application/pem-certificate-chain")],
                body: Array((leaf[..<end.upperBound] + crossCertificate.pemRepresentation).utf8))
        case "revokeCert": return revoke(request, &state)
        default: return Self.problem(404, "malformed", "No such resource")
        }
    }

    private func mistake(_ text: String, _ state: inout State) -> Response {
        state.mistakes.append(text)
        return Self.problem(400, "malformed", text)
    }

    private struct Refusal: Error { let response: Response }

    static func decoded(_ text: String) -> [UInt8]? {
        var text = text.replacing("-", with: "+").replacing("_", with: "/")
        text += String(repeating: "=", count: (4 - text.utf8.count % 4) % 4)
        return Data(base64Encoded: text).map(Array.init)
    }

    private static func object(_ text: String) -> [String: Any]? {
        guard let bytes = decoded(text) else { return nil }
        return try? JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any]
    }

    private func read(_ body: [UInt8], url: String, _ state: inout State) -> Result<Request, Refusal> {
        guard let members = try? JSONSerialization.jsonObject(with: Data(body)) as? [String: String],
            let protected = members["protected"], let payload = members["payload"],
            let signature = members["signature"],
            let header = Self.object(protected), header["alg"] as? String == "ES256"
        else { return .failure(Refusal(response: mistake("not a flattened JSON Web Signature", &state))) }
        guard header["url"] as? String == url else {
            return .failure(Refusal(response: mistake("the signed URL is not \(url)", &state)))
        }
        guard let nonce = header["nonce"] as? String, state.nonces.remove(nonce) != nil else {
            return .failure(Refusal(response: Self.problem(400, "badNonce", "Not a nonce of this server")))
        }
        if state.behaviour.refusedNonces > 0 {
            state.behaviour.refusedNonces -= 1
            return .failure(Refusal(response: Self.problem(400, "badNonce", "The test says so")))
        }
        var account: String?
        let key: [String: String]
        if let kid = header["kid"] as? String {
            let name = String(kid.split(separator: "/").last ?? "")
            guard let known = state.accounts[name], header["jwk"] == nil else {
                return .failure(Refusal(response: Self.problem(400, "accountDoesNotExist", "No account \(name)")))
            }
            guard known.status == "valid" else {
                return .failure(Refusal(response: Self.problem(403, "unauthorized", "Account is \(known.status)")))
            }
            (account, key) = (name, known.key)
        } else if let jwk = header["jwk"] as? [String: String] {
            key = jwk
        } else {
            return .failure(Refusal(response: mistake("neither kid nor jwk", &state)))
        }
        guard let x = Self.decoded(key["x"] ?? ""), let y = Self.decoded(key["y"] ?? ""), x.count == 32, y.count == 32,
            let public_ = try? P256.Signing.PublicKey(x963Representation: [4] + x + y),
            let raw = Self.decoded(signature), let ecdsa = try? P256.Signing.ECDSASignature(rawRepresentation: raw),
            public_.isValidSignature(ecdsa, for: Data("\(protected).\(payload)".utf8))
        else { return .failure(Refusal(response: mistake("the signature does not verify", &state))) }
        return .success(
            Request(
                payload: Self.object(payload) ?? [:], isRead: payload.isEmpty, key: key, account: account, url: url,
                signed: Data(Self.decoded(payload) ?? [])))
    }

    // MARK: - Accounts

    private func newAccount(_ request: Request, _ state: inout State) -> Response {
        let behaviour = state.behaviour
        func object(_ name: String, _ account: Account, _ status: Int) -> Response {
            let base = behaviour.origin ?? origin
            var members: [String: Any] = ["status": account.status, "contact": account.contact]
            if behaviour.hasOrderList { members["orders"] = "\(base)/orders/\(name)" }
            return Self.json(members, status: status, [("Location", "\(base)/account/\(name)")])
        }
        let isLookUp = request.payload["onlyReturnExisting"] as? Bool == true
        if isLookUp, behaviour.bindsLookUps, !isBound(request, behaviour) {
            return Self.problem(400, "externalAccountRequired", "Bind the request")
        }
        if let (name, known) = state.accounts.first(where: { $0.value.key == request.key }) {
            return object(name, known, 200)
        }
        if isLookUp { return Self.problem(400, "accountDoesNotExist", "No account for this key") }
        if behaviour.terms != nil, request.payload["termsOfServiceAgreed"] as? Bool != true {
            return Self.problem(403, "userActionRequired", "Agree to the terms")
        }
        if !behaviour.externalAccounts.isEmpty, !isBound(request, behaviour) {
            return Self.problem(401, "unauthorized", "The binding does not verify")
        }
        state.count += 1
        let name = "a\(state.count)"
        let account = Account(key: request.key, contact: request.payload["contact"] as? [String] ?? [])
        state.accounts[name] = account
        return object(name, account, 201)
    }

    private func isBound(_ request: Request, _ behaviour: Behaviour) -> Bool {
        guard let binding = request.payload["externalAccountBinding"] as? [String: String],
            let header = Self.object(binding["protected"] ?? ""), let id = header["kid"] as? String,
            let key = behaviour.externalAccounts[id], header["url"] as? String == request.url,
            let bound = Self.object(binding["payload"] ?? "") as? [String: String], bound == request.key,
            let code = Self.decoded(binding["signature"] ?? "")
        else { return false }
        return Self.isRight(
            code, header["alg"] as? String, Data("\(binding["protected"] ?? "").\(binding["payload"] ?? "")".utf8), key)
    }

    private static func isRight(_ code: [UInt8], _ algorithm: String?, _ message: Data, _ key: [UInt8]) -> Bool {
        let key = SymmetricKey(data: key)
        return switch algorithm {
        case "HS256": HMAC<SHA256>.isValidAuthenticationCode(code, authenticating: message, using: key)
        case "HS384": HMAC<SHA384>.isValidAuthenticationCode(code, authenticating: message, using: key)
        case "HS512": HMAC<SHA512>.isValidAuthenticationCode(code, authenticating: message, using: key)
        default: false
        }
    }

    private func account(_ request: Request, _ parts: [String], _ state: inout State) -> Response {
        guard parts.count == 2, request.account == parts[1] else { return mistake("another's account", &state) }
        if request.isRead, !state.behaviour.showsAccounts { return Self.problem(405, "malformed", "Not readable") }
        if let status = request.payload["status"] as? String { state.accounts[parts[1]]?.status = status }
        if let contact = request.payload["contact"] as? [String] { state.accounts[parts[1]]?.contact = contact }
        guard let account = state.accounts[parts[1]] else { return mistake("an unknown account", &state) }
        var members: [String: Any] = ["status": account.status, "contact": account.contact]
        if state.behaviour.hasOrderList { members["orders"] = "\(state.behaviour.origin ?? origin)/orders/\(parts[1])" }
        return Self.json(members)
    }

    // MARK: - Orders

    private func newOrder(_ request: Request, _ base: String, _ state: inout State) -> Response {
        guard let account = request.account, let identifiers = request.payload["identifiers"] as? [[String: String]],
            !identifiers.isEmpty
        else { return mistake("an order without names", &state) }
        if request.payload["replaces"] != nil,
            case .status(let status, let problem, let headers)? = state.behaviour.refusalOfReplaces
        {
            var response = Self.problem(status, problem ?? "serverInternal", "It cannot be replaced")
            response.headers += headers
            return response
        }
        if let replaces = request.payload["replaces"] as? String,
            state.orders.values.contains(where: { $0.replaces == replaces && $0.status == "valid" })
        {
            return Self.problem(409, "alreadyReplaced", "It was replaced")
        }
        state.count += 1
        let name = "o\(state.count)"
        var order = Order(account: account, identifiers: identifiers)
        order.replaces = request.payload["replaces"] as? String
        order.profile = request.payload["profile"] as? String
        for (index, identifier) in identifiers.enumerated() {
            let authorization = "\(name)z\(index)"
            state.authorizations[authorization] = Authorization(
                identifier: identifier, token: state.behaviour.token ?? "token-\(authorization)",
                status: state.behaviour.isAuthorised ? "valid" : "pending")
            order.authorizations.append(authorization)
        }
        if state.behaviour.isAuthorised { order.status = "ready" }
        state.orders[name] = order
        return orderObject(name, base, state, status: 201)
    }

    private func orderObject(_ name: String, _ base: String, _ state: State, status: Int = 200) -> Response {
        guard let order = state.orders[name] else { return Self.problem(404, "malformed", "No such order") }
        var members: [String: Any] = [
            "status": order.status, "identifiers": order.identifiers,
            "authorizations": order.authorizations.flatMap {
                Array(repeating: "\(base)/authz/\($0)", count: state.behaviour.authorizationCount)
            },
            "finalize": "\(base)/finalize/\(name)",
        ]
        members["certificate"] = order.certificate.map { "\(base)/cert/\($0)" }
        var headers = [("Location", "\(base)/order/\(name)")]
        if let delay = state.behaviour.retryAfter { headers.append(("Retry-After", delay)) }
        return Self.json(members, status: status, headers)
    }

    private func order(_ request: Request, _ name: String, _ base: String, _ state: inout State) -> Response {
        guard let order = state.orders[name] else { return Self.problem(404, "malformed", "No such order") }
        guard order.account == request.account else { return Self.problem(403, "unauthorized", "Another's order") }
        if order.status == "pending" {
            if state.behaviour.decidesByOrder {
                for one in order.authorizations where state.authorizations[one]?.isSubmitted == true {
                    decide(one, &state)
                }
            }
            let all = order.authorizations.compactMap { state.authorizations[$0]?.status }
            if all.allSatisfy({ $0 == "valid" }) { state.orders[name]?.status = "ready" }
            if all.contains("invalid") { state.orders[name]?.status = "invalid" }
        } else if order.status == "processing" {
            if order.looks >= state.behaviour.orderLooks {
                issue(name, &state)
            } else {
                state.orders[name]?.looks += 1
            }
        }
        return orderObject(name, base, state)
    }

    private func authorization(_ request: Request, _ name: String, _ base: String, _ state: inout State) -> Response {
        guard let authorization = state.authorizations[name] else {
            return Self.problem(404, "malformed", "No such authorisation")
        }
        if authorization.status == "pending", authorization.isSubmitted { decide(name, &state) }
        let current = state.authorizations[name] ?? authorization
        state.count += 1
        let change = state.behaviour.changesChallenges ? "-\(state.count)" : ""
        let challenges: [[String: Any]] = state.behaviour.challenges.map { type in
            var challenge: [String: Any] = [
                "type": type, "url": "\(base)/chall/\(name)\(change)", "token": authorization.token + change,
                "status": current.status,
            ]
            if current.status == "invalid", let refusal = state.behaviour.refusal {
                challenge["error"] = ["type": "urn:ietf:params:acme:error:\(refusal)", "detail": "The test refuses"]
            }
            return challenge
        }
        var headers: [(String, String)] = []
        if let delay = state.behaviour.authorizationRetryAfter ?? state.behaviour.retryAfter {
            headers.append(("Retry-After", delay))
        }
        // A wildcard is named by its domain (RFC 8555, section 7.1.4).
        var identifier = authorization.identifier
        let isWildcard = identifier["value"]?.hasPrefix("*.") == true
        if isWildcard { identifier["value"] = identifier["value"].map { String($0.dropFirst(2)) } }
        if let foreign = state.behaviour.foreignName { identifier["value"] = foreign }
        var members: [String: Any] = ["identifier": identifier, "status": current.status, "challenges": challenges]
        if isWildcard { members["wildcard"] = true }
        return Self.json(members, headers)
    }

    private func challenge(_ request: Request, _ name: String, _ base: String, _ state: inout State) -> Response {
        let name = String(name.prefix { $0 != "-" })
        state.authorizations[name]?.isSubmitted = true
        state.authorizations[name]?.statement = (request.payload["attObj"] as? String).flatMap(Self.decoded)
        return Self.json(["type": "http-01", "url": "\(base)/chall/\(name)", "status": "pending"])
    }

    /// Looks for the answer below the document root.
    private func decide(_ name: String, _ state: inout State) {
        guard var authorization = state.authorizations[name] else { return }
        defer {
            state.authorizations[name] = authorization
            if authorization.status == "invalid" {
                for (order, known) in state.orders where known.authorizations.contains(name) {
                    state.orders[order]?.status = "invalid"
                }
            }
        }
        authorization.looks += 1
        guard authorization.looks > state.behaviour.looks else { return }
        guard state.behaviour.refusal == nil else {
            authorization.status = "invalid"
            return
        }
        let path = "\(documentRoot)/.well-known/acme-challenge/\(authorization.token)"
        let text = (try? String(contentsOfFile: path, encoding: .utf8)) ?? ""
        let thumbprints = state.accounts.values.compactMap { account -> String? in
            let members =
                "{\"crv\":\"P-256\",\"kty\":\"EC\",\"x\":\"\(account.key["x"] ?? "")\",\"y\":\"\(account.key["y"] ?? "")\"}"
            return Data(SHA256.hash(data: Data(members.utf8))).base64EncodedString().replacing("+", with: "-")
                .replacing("/", with: "_").replacing("=", with: "")
        }
        let isRight =
            authorization.statement != nil || thumbprints.contains { text == "\(authorization.token).\($0)" }
        if !isRight { state.mistakes.append("no right answer to the challenge of \(name)") }
        authorization.status = isRight ? "valid" : "invalid"
    }

    private func finalize(_ request: Request, _ name: String, _ base: String, _ state: inout State) -> Response {
        guard let order = state.orders[name] else { return Self.problem(404, "malformed", "No such order") }
        guard order.status == "ready" else { return Self.problem(403, "orderNotReady", "It is \(order.status)") }
        guard let csr = Self.decoded(request.payload["csr"] as? String ?? "") else {
            return Self.problem(400, "badCSR", "No request")
        }
        state.orders[name]?.csr = csr
        state.orders[name]?.status = "processing"
        if state.behaviour.orderLooks == 0 { issue(name, &state) }
        return orderObject(name, base, state)
    }

    private func issue(_ name: String, _ state: inout State) {
        guard let order = state.orders[name], let csr = order.csr else { return }
        let kind = state.behaviour.issue
        do {
            let text = try chain(order, csr, kind, &state)
            state.certificates[name] = text
            state.orders[name]?.certificate = name
            state.orders[name]?.status = "valid"
        } catch {
            state.mistakes.append("the certificate request cannot be used: \(error)")
            state.orders[name]?.status = "invalid"
        }
    }

    private func chain(_ order: Order, _ csr: [UInt8], _ kind: Issue, _ state: inout State) throws -> String {
        switch kind {
        case .notPEM: return "no certificate"
        case .empty: return ""
        default: break
        }
        let request = try CertificateSigningRequest(derEncoded: csr)
        guard request.publicKey.isValidSignature(request.signature, for: request) else {
            throw ProviderError(.keyMismatch, "the request's signature does not verify")
        }
        let names: [GeneralName] = try order.identifiers.map { identifier in
            let value = identifier["value"] ?? ""
            return switch identifier["type"] {
            case "ip":
                .ipAddress(ASN1OctetString(contentBytes: value.split(separator: ".").compactMap { UInt8($0) }[...]))
            case "permanent-identifier": try Self.permanentIdentifier(value)
            default: .dnsName(value)
            }
        }
        let requested = try request.attributes.extensionRequest?.extensions.subjectAlternativeNames
        guard requested.map({ Set($0) }) == Set(names) else {
            throw ProviderError(.malformedData, "the request's names are not those of the order")
        }
        let now = now() + state.behaviour.ahead
        let subject = kind == .otherSubject ? try DistinguishedName { CommonName("dropped.example") } : request.subject
        let certificate = try Certificate(
            version: .v3, serialNumber: .init(),
            publicKey: kind == .otherKey ? .init(P256.Signing.PrivateKey().publicKey) : request.publicKey,
            notValidBefore: kind == .future ? now + 86_400 : now - 7200,
            notValidAfter: kind == .expired ? now - 3600 : now + 90 * 86_400,
            issuer: try DistinguishedName { CommonName("Test ACME CA") }, subject: subject,
            signatureAlgorithm: .ecdsaWithSHA256,
            extensions: try Certificate.Extensions {
                SubjectAlternativeNames(kind == .otherNames ? [.dnsName("other.example")] : names)
                try ExtendedKeyUsage(kind == .otherUsage ? [.codeSigning] : [.serverAuth, .clientAuth])
                AuthorityKeyIdentifier(keyIdentifier: Self.keyIdentifier[...])
            }, issuerPrivateKey: .init(authorityKey))
        state.issued.append(certificate)
        let leaf = try Self.converted(certificate).pemRepresentation
        let root = authority.pemRepresentation
        switch kind {
        case .leafAlone: return leaf
        case .reversed: return root + leaf
        case .text: return "Subject: a certificate\r\n\r\n" + leaf + "\nIssuer\n\n" + root + "\n# End"
        case .damaged: return leaf.replacing("A", with: "!") + root
        case .huge: return leaf + String(repeating: root, count: 10_000_000 / root.utf8.count)
        case .many: return leaf + String(repeating: root, count: 1000)
        default: break
        }
        return leaf + (kind == .twice ? leaf : "") + authority.pemRepresentation
    }

    private static func permanentIdentifier(_ value: String) throws -> GeneralName {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { try $0.serialize(ASN1UTF8String(value)) }
        let encoded = try ASN1Any(derEncoded: serializer.serializedBytes)
        return .otherName(.init(typeID: [1, 3, 6, 1, 5, 5, 7, 8, 3], value: encoded))
    }

    private func revoke(_ request: Request, _ state: inout State) -> Response {
        guard let der = Self.decoded(request.payload["certificate"] as? String ?? ""),
            let certificate = try? Certificate(derEncoded: der)
        else { return mistake("a revocation of nothing", &state) }
        let serial = Array(certificate.serialNumber.bytes)
        if state.revoked.contains(where: { $0.serial == serial }) {
            return Self.problem(400, "alreadyRevoked", "It is revoked")
        }
        state.revoked.append((serial, request.payload["reason"] as? Int))
        return Response()
    }
}
