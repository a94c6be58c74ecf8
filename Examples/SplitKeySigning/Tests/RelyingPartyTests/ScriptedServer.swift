import CertificateProviding
import Crypto
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import Logging
import NIOCore
import NIOSSL
import ServiceLifecycle
import Synchronization

@testable import RelyingParty

struct ScriptedContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let channel: any Channel

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        channel = source.channel
    }
}

/// What the verifier is asked.
struct VerifierQuestion: Decodable, Sendable {
    let signature: SignatureObject
    let timestamp: Int
    let type: String
}

/// An OpenID provider and a verifier, in this process and over TLS, which do as they are told.
final class ScriptedServer: Sendable {
    static let clientID = "rp 1+"
    static let clientSecret = "s3cret+/=%"
    static let redirectURI = "http://localhost:8080/login"

    struct Script: Sendable {
        /// Changes the claims of an ID token.
        var idToken: @Sendable (inout TokenMaker.Claims) -> Void = { _ in }
        var idTokenSignature = TokenMaker.Signature.right
        var idTokenKey: String? = "one"
        /// `nil` for that of the tokens.
        var keySet: String?
        /// Answers the verifier's question; `nil` closes the connection instead.
        var verify: (@Sendable (VerifierQuestion, ScriptedServer) async throws -> (Int, String)?)?
        /// Changes the claims of a receipt.
        var receipt: @Sendable (inout TokenMaker.Claims) -> Void = { _ in }
        var receiptSignature = TokenMaker.Signature.right
        var issuer: String?
    }

    private struct State {
        var script = Script()
        var port = 0
        var codes: [String: [String: String]] = [:]
        var paths: [String] = []
        var questions: [VerifierQuestion] = []
        /// Who is logged in at the browser.
        var user = "alice@example.com"
    }
    private let state = Mutex(State())
    let tokens: TokenMaker
    let clock: TestClock

    private init(_ tokens: TokenMaker, _ clock: TestClock) { (self.tokens, self.clock) = (tokens, clock) }

    var url: String { "https://localhost:\(state.withLock(\.port))" }
    var paths: [String] { state.withLock(\.paths) }
    var questions: [VerifierQuestion] { state.withLock(\.questions) }

    func tell(_ change: (inout Script) -> Void) { state.withLock { change(&$0.script) } }
    func logIn(_ user: String) { state.withLock { $0.user = user } }

    /// Runs a server for as long as the body runs.
    static func run<Value: Sendable>(
        _ clock: TestClock, _ body: @Sendable (ScriptedServer) async throws -> Value
    ) async throws -> Value {
        let fixtures = try await Fixtures.shared
        let server = ScriptedServer(try await TokenMaker(fixtures), clock)
        let (ports, port) = AsyncStream.makeStream(of: Int.self)
        let path = fixtures.directory.path
        let configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: try NIOSSLCertificate.fromPEMFile("\(path)/server.pem").map { .certificate($0) },
            privateKey: .privateKey(try NIOSSLPrivateKey(file: "\(path)/server.key", format: .pem)))
        let logger = Logger(label: "scripted") { _ in SwiftLogNoOpLogHandler() }
        let application = Application(
            router: server.router(), server: try .tls(.http1(), tlsConfiguration: configuration),
            configuration: .init(address: .hostname("localhost", port: 0)),
            onServerRunning: { port.yield($0.localAddress?.port ?? 0) }, logger: logger)
        let services = ServiceGroup(configuration: .init(services: [application], logger: logger))
        return try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await services.run() }
            for await port in ports {
                server.state.withLock { $0.port = port }
                break
            }
            let result: Result<Value, any Error>
            do { result = .success(try await body(server)) } catch { result = .failure(error) }
            group.cancelAll()
            try? await group.waitForAll()
            return try result.get()
        }
    }

    /// What the browser of the user comes back with.
    func authorize(_ url: String) throws -> (code: String, state: String) {
        let items = URLComponents(string: url.replacing("+", with: "%20"))?.queryItems ?? []
        let query = Dictionary(items.map { ($0.name, $0.value ?? "") }, uniquingKeysWith: { one, _ in one })
        let code = "c0de-" + UUID().uuidString
        state.withLock { $0.codes[code] = query.merging(["user": $0.user]) { $1 } }
        return (code, query["state"] ?? "")
    }

    private func router() -> Router<ScriptedContext> {
        let router = Router(context: ScriptedContext.self)
        router.get("/.well-known/openid-configuration") { [self] request, _ in
            let issuer = noted(request).issuer ?? url
            return Self.answer(
                #"{"issuer":"\#(issuer)","authorization_endpoint":"\#(url)/authorize?x=1","token_endpoint":"\#(url)/token","jwks_uri":"\#(url)/jwks"}"#
            )
        }
        router.get("/jwks") { [self] request, _ in
            Self.answer(noted(request).keySet ?? tokens.keySet)
        }
        router.get("/dvs/jwks") { [self] request, _ in
            _ = noted(request)
            return Self.answer(tokens.keySet)
        }
        router.post("/token") { [self] request, _ in try await token(request) }
        router.post("/dvs/verify") { [self] request, context in try await verify(request, context) }
        return router
    }

    private func noted(_ request: Request) -> Script {
        state.withLock {
            $0.paths.append(request.uri.path)
            return $0.script
        }
    }

    private static func answer(_ json: String, _ status: Int = 200) -> Response {
        Response(
            status: .init(code: status), headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: json)))
    }

    private func token(_ request: Request) async throws -> Response {
        let script = noted(request)
        let form = Dictionary(
            String(buffer: try await request.body.collect(upTo: 65536)).split(separator: "&").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                return (String(parts[0]), parts[1].replacing("+", with: " ").removingPercentEncoding ?? "")
            }, uniquingKeysWith: { one, _ in one })
        // Form-encoded before they become Basic's (RFC 6749, section 2.3.1).
        let credentials = Data("rp+1%2B:s3cret%2B%2F%3D%25".utf8).base64EncodedString()
        guard request.headers[.authorization] == "Basic \(credentials)" else {
            return Self.answer(#"{"error":"invalid_client"}"#, 401)
        }
        let challenge = ByteText.base64URL(SHA256.hash(data: Data((form["code_verifier"] ?? "").utf8)))
        guard let query = state.withLock({ $0.codes.removeValue(forKey: form["code"] ?? "") }),
            form["grant_type"] == "authorization_code", query["redirect_uri"] == form["redirect_uri"],
            query["code_challenge"] == challenge, query["code_challenge_method"] == "S256"
        else { return Self.answer(#"{"error":"invalid_grant"}"#, 400) }
        let time = Int(clock.now().timeIntervalSince1970)
        var claims: TokenMaker.Claims = [
            "iss": url, "aud": Self.clientID, "sub": query["user"] ?? "", "nonce": query["nonce"] ?? "", "iat": time,
            "exp": time + 600,
        ]
        script.idToken(&claims)
        let token = try tokens.token(claims, script.idTokenSignature, kid: script.idTokenKey)
        return Self.answer(
            #"{"access_token":"pr0vider-t0ken","token_type":"Bearer","expires_in":600,"id_token":"\#(token)"}"#)
    }

    private func verify(_ request: Request, _ context: ScriptedContext) async throws -> Response {
        let script = noted(request)
        let credentials = Data("\(Self.clientID):\(Self.clientSecret)".utf8).base64EncodedString()
        guard request.headers[.authorization] == "Basic \(credentials)" else {
            return Self.answer(#"{"message":"unknown client"}"#, 403)
        }
        let body = try await request.body.collect(upTo: 65536)
        let question = try JSONDecoder().decode(VerifierQuestion.self, from: Data(body.readableBytesView))
        state.withLock { $0.questions.append(question) }
        guard let verify = script.verify else { return Self.answer(try receipt(for: question)) }
        guard let (status, text) = try await verify(question, self) else {
            try await context.channel.close()
            return Response(status: .internalServerError)
        }
        return Self.answer(text, status)
    }

    /// The answer with a receipt, as the script has it.
    func receipt(for question: VerifierQuestion) throws -> String {
        let script = state.withLock(\.script)
        let time = Int(clock.now().timeIntervalSince1970)
        var claims: TokenMaker.Claims = [
            "iss": url, "aud": Self.clientID, "iat": time, "exp": time + 600, "hash": question.signature.hash,
            "mpinId": question.signature.mpinId, "publicKey": question.signature.publicKey,
            "timestamp": question.timestamp, "cAt": max(time, question.timestamp),
        ]
        script.receipt(&claims)
        return #"{"certificate":"\#(try tokens.token(claims, script.receiptSignature))"}"#
    }
}
