import CertificateProviding
import Crypto
import Foundation
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import SwiftASN1
import Synchronization
import TestSupport
import X509

@testable import ProviderTransport

/// An EST server (RFC 7030, RFC 8951) in memory, with TLS, which fails on request. `ESTResponderTests` shows that other clients
/// than ours work with it. It is not an independent peer: TLS is BoringSSL's at both ends, and certificates are
/// swift-certificates'. For that there is ``ESTServer``.
final class ESTResponder: Sendable {
    struct Options {
        /// `any`, `1.2`, `1.3`.
        var tls = "any"
        var serverCertificate = ServerCertificate.right
        /// The demanded content of requests, in the words of ``ESTWishes``.
        var wishes: [String] = []
        var enforcesWishes = false
        /// Whether the wishes are told only to those who may enrol.
        var authenticatesWishes = false
        /// How often each request is put off.
        var pending = 0
        /// Seconds, `date-5`, `absent`.
        var retryAfter = "1"
        var makesKeys = true
        /// Whether `cacerts` has OldWithNew and NewWithOld after a rollover.
        var linksRoots = true
        var hasIntermediate = true
        /// The manufacturer's alone, so that a client is refused that shows a certificate of this server's.
        var refusesOwnClients = false
        /// The status for all requests of clients that show a certificate of this server's, as nginx answers 400.
        var ownClientStatus: Int?
        var password = ESTServer.password
        /// How many right answers to Digest come too late for their nonce.
        var staleAnswers = 0
        /// Faults for paths without a label.
        var fault = ""
    }

    enum ServerCertificate { case right, selfSigned }

    struct State {
        var chain: [X509Certificate] = []
        var key: Certificate.PrivateKey
        var successor: ESTAuthority?
        var isRolledOver = false
        var requests: [ESTRequest] = []
        /// By serial number, and in their order.
        var issued: [X509Certificate] = []
        var connectionCount = 0
        var credentials: ESTCredentials
        var pending = ESTPending()
        /// How often each fault has played.
        var plays: [String: Int] = [:]
    }

    let options: Options
    let network: InMemoryNetwork
    /// Data about a server is stored under its URL: no two responders have the same.
    let port: Int
    /// `ca.pem`, `intermediate.pem`, `new-ca.pem`, `server.pem`, `server.pin`, `manufacturer.pem`, `manufacturer.key`
    /// and `stranger-ca.pem`, as those of ``ESTServer``.
    let directory: TemporaryDirectory
    let authority: ESTAuthority
    let wishes: ESTWishes
    let state: Mutex<State>

    static let stranger = Result { try ESTAuthority("Stranger's Root CA", issuing: "Stranger's Issuing CA") }
    static let manufacturer = Result { try ESTAuthority("Manufacturer", issuing: nil) }

    private static let ports = Atomic(8442)
    /// Issuing takes its time, and the clients are not to wait for that.
    private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init(
        _ authentication: ESTAuthentication = [], _ options: Options = Options(), in network: InMemoryNetwork = .init()
    ) throws {
        self.options = options
        self.network = network
        port = Self.ports.add(1, ordering: .relaxed).newValue
        directory = try TemporaryDirectory()
        authority = try ESTAuthority(issuing: options.hasIntermediate ? "Issuing CA" : nil)
        wishes = ESTWishes(options.wishes)
        var credentials = ESTCredentials(authentication)
        (credentials.password, credentials.staleAnswers) = (options.password, options.staleAnswers)
        state = Mutex(State(key: .init(P256.Signing.PrivateKey()), credentials: credentials))
        try takeCertificate(of: authority)
        try write([authority.root], to: "ca.pem")
        try write(authority.intermediates, to: "intermediate.pem")
        try write([Self.stranger.get().root], to: "stranger-ca.pem")
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let device = try ESTAuthority.Leaf(subject: ESTAuthority.name("Device"), publicKey: key.publicKey)
        try write([Self.manufacturer.get().issue(device)], to: "manufacturer.pem")
        try directory.write("\(key.serializeAsPEM().pemString)\n".utf8, to: "manufacturer.key")
        for host in ["localhost", "127.0.0.1"] {
            network.listen(on: host, port: port, group: Self.group) { [weak self] channel in
                channel.eventLoop.makeCompletedFuture {
                    guard let self else { throw ChannelError.eof }
                    try self.prepare(channel)
                }
            }
        }
    }

    /// The requests that were answered, or left without an answer.
    var requests: [ESTRequest] { state.withLock(\.requests) }

    /// The number of certificates issued.
    var issued: Int { state.withLock(\.issued.count) }

    /// - Parameter authority: The file with the root that must have issued.
    func verify(_ identity: Identity, by authority: String = "ca.pem") throws {
        try ESTServer.verify(identity, by: authority, in: directory)
    }

    /// Goes over to a new root, whose authority certifies the server too from now on.
    func rollOver() throws {
        try takeCertificate(of: try successor())
        state.withLock { $0.isRolledOver = true }
    }

    /// The authority after a rollover: a root of the same name, made when first asked for.
    func successor() throws -> ESTAuthority {
        if let known = state.withLock(\.successor) { return known }
        let new = try ESTAuthority(issuing: options.hasIntermediate ? "Issuing CA 2" : nil)
        let successor = state.withLock { state in
            state.successor = state.successor ?? new
            return state.successor ?? new
        }
        try write([successor.root], to: "new-ca.pem")
        return successor
    }

    private func write(_ certificates: [X509Certificate], to name: String) throws {
        try directory.write(certificates.map(\.pemRepresentation).joined().utf8, to: name)
    }

    // MARK: - TLS

    private func takeCertificate(of authority: ESTAuthority) throws {
        let key = Certificate.PrivateKey(P256.Signing.PrivateKey())
        let names = SubjectAlternativeNames([
            .dnsName("localhost"), .ipAddress(.init(contentBytes: [127, 0, 0, 1])),
        ])
        let leaf = try ESTAuthority.Leaf(
            subject: ESTAuthority.name("localhost"), publicKey: key.publicKey, names: names,
            validity: (-60, 86_400), purposes: [.serverAuth])
        let chain =
            switch options.serverCertificate {
            case .right: [try authority.issue(leaf)] + authority.intermediates
            case .selfSigned: [try ESTAuthority.selfSigned(leaf, key: key)]
            }
        state.withLock { ($0.chain, $0.key) = (chain, key) }
        try write(chain, to: "server.pem")
        let pin = Data(chain[0].publicKey.sha256).base64EncodedString()
        try directory.write("sha256/\(pin)\n".utf8, to: "server.pin")
    }

    /// Asks for a client certificate without requiring one: the request tells which operation needs one.
    private func context(logging binding: ChannelBinding) throws -> NIOSSLContext {
        let (chain, key, successor) = state.withLock { ($0.chain, $0.key, $0.successor) }
        func certificates(_ certificates: [X509Certificate]) throws -> [NIOSSLCertificate] {
            try certificates.map { try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der) }
        }
        let privateKey = try NIOSSLPrivateKey(bytes: key.serializeAsPEM().derBytes, format: .der)
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: try certificates(chain).map { .certificate($0) }, privateKey: .privateKey(privateKey))
        let own = options.refusesOwnClients ? [] : authority.certificates + (successor?.certificates ?? [])
        configuration.certificateVerification = .optionalVerification
        configuration.trustRoots = .certificates(try certificates(own + [Self.manufacturer.get().root]))
        configuration.sendCANameList = true
        // Those of all keys that clients have; by default some are missing.
        configuration.verifySignatureAlgorithms = [
            .ecdsaSecp256R1Sha256, .ecdsaSecp384R1Sha384, .ecdsaSecp521R1Sha512, .ed25519, .rsaPssRsaeSha256,
            .rsaPssRsaeSha384, .rsaPssRsaeSha512, .rsaPkcs1Sha256, .rsaPkcs1Sha384, .rsaPkcs1Sha512,
        ]
        configuration.minimumTLSVersion = options.tls == "1.3" ? .tlsv13 : .tlsv12
        configuration.maximumTLSVersion = options.tls == "1.2" ? .tlsv12 : .tlsv13
        configuration.keyLogCallback = binding.secretsCallback
        return try NIOSSLContext(configuration: configuration)
    }

    /// Adds the handlers of a connection.
    func prepare(_ channel: any Channel) throws {
        let number = state.withLock { state in
            state.connectionCount += 1
            return state.connectionCount
        }
        let binding = ChannelBinding()
        let (raw, pipeline) = (RawEnd(), channel.pipeline.syncOperations)
        try pipeline.addHandler(raw)
        try pipeline.addHandler(NIOSSLServerHandler(context: context(logging: binding)))
        try pipeline.addHandler(ByteToMessageHandler(HTTPRequestDecoder()))
        try pipeline.addHandler(
            ESTConversation(over: raw) { [weak self] request, client in
                self?.respond(to: request, ESTClientEnd(connection: number, certificate: client, binding: binding))
                    ?? ESTReply(outcome: .interruption(.closeAfterRequest), faults: .none)
            })
    }
}
