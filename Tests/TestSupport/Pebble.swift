public import CertificateProviding
import Foundation
import SwiftASN1
import Synchronization

/// Debian's `pebble`, an ACME server for tests, on ports of its own for as long as this object lives.
///
/// Its accounts, authorities and certificates are new at each start.
public final class Pebble: Sendable {
    /// How the server finds out whether a client has the names that it asks for.
    public enum Validation: Sendable {
        /// It makes no connection and admits each challenge.
        case none
        /// It connects to these ports, of `http-01` and `tls-alpn-01`. All names but those that are set at ``dnsManagement`` lead to
        /// 127.0.0.1.
        case ports(http: Int, tls: Int)
    }

    public struct Options: Sendable {
        public var validation: Validation
        /// How many of a hundred good nonces are refused, with `badNonce`.
        public var refusedNonces: Int
        /// How many of a hundred authorizations that are valid are used for a further order.
        public var reusedAuthorizations: Int
        /// Domains for which a new order is refused, with `rejectedIdentifier`; their subdomains too.
        public var refusedDomains: [String]
        /// MAC keys in base64url by the identifier of the key. A new account must be bound to one of them, if there are any.
        public var externalAccounts: [String: String]
        /// The validity of a certificate; `nil` for five years.
        public var seconds: Int?
        /// The certificates of a chain without the root.
        public var chainLength: Int
        /// How many further chains, with roots of their own, the server offers for a certificate.
        public var alternateRoots: Int
        /// Further variables, which go before those of the options.
        public var environment: [String: String]

        public init(
            validation: Validation = .none, refusedNonces: Int = 0, reusedAuthorizations: Int = 0,
            refusedDomains: [String] = [], externalAccounts: [String: String] = [:], seconds: Int? = nil,
            chainLength: Int = 2, alternateRoots: Int = 0, environment: [String: String] = [:]
        ) {
            (self.validation, self.refusedNonces) = (validation, refusedNonces)
            (self.reusedAuthorizations, self.refusedDomains) = (reusedAuthorizations, refusedDomains)
            (self.externalAccounts, self.seconds) = (externalAccounts, seconds)
            (self.chainLength, self.alternateRoots, self.environment) = (chainLength, alternateRoots, environment)
        }
    }

    /// Whether the programs are there. `make test` installs them.
    public static var isInstalled: Bool { FileManager.default.isExecutableFile(atPath: program) }
    private static let program = "/usr/bin/pebble"

    public let directory: TemporaryDirectory
    /// The URL where a client begins.
    public let directoryURL: String
    /// The PEM file with the CA of the server's own TLS certificate.
    public let serverCA: String
    /// The URL where `pebble-challtestsrv` takes DNS records, such as `POST /set-txt` with `{"host": "_acme-challenge.NAME.", "value": "…"}`;
    /// `nil` without validation.
    public let dnsManagement: String?
    private let management: String
    private let ports: [ReservedPort]
    private let processes: Mutex<[Subprocess]>
    private let command: (arguments: [String], environment: [String: String])

    private static let threads = BlockingExecutor.threads(maximum: 8)

    /// Returns when the server answers.
    public static func start(_ options: Options = Options()) async throws -> Pebble {
        try await threads.run { () throws(ProviderError) in
            do { return try Pebble(options) } catch { throw ProviderError(.internal, "\(error)") }
        }
    }

    private init(_ options: Options) throws {
        directory = try TemporaryDirectory()
        ports = try (0..<4).map { _ in try ReservedPort() }
        directoryURL = "https://localhost:\(ports[0])/dir"
        management = "https://localhost:\(ports[1])"
        let authority = try TestAuthority("Server")
        let identity = try authority.issue("localhost", addresses: [[127, 0, 0, 1]])
        serverCA = try directory.write(Array(authority.root.pemRepresentation.utf8), to: "server-ca.pem")
        let chain = identity.certificateChain.map(\.pemRepresentation).joined()
        var settings: [String: Any] = [
            "listenAddress": "127.0.0.1:\(ports[0])", "managementListenAddress": "127.0.0.1:\(ports[1])",
            "certificate": try directory.write(Array(chain.utf8), to: "server.pem"),
            "privateKey": try directory.write(Array(identity.pkcs8PEM().utf8), to: "server.key"),
            "domainBlocklist": options.refusedDomains,
            "externalAccountBindingRequired": !options.externalAccounts.isEmpty,
            "externalAccountMACKeys": options.externalAccounts,
        ]
        settings["certificateValidityPeriod"] = options.seconds
        var environment = [
            "PATH": "/usr/bin:/bin", "PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "\(options.refusedNonces)",
            "PEBBLE_AUTHZREUSE": "\(options.reusedAuthorizations)", "PEBBLE_CHAIN_LENGTH": "\(options.chainLength - 1)",
            "PEBBLE_ALTERNATE_ROOTS": "\(options.alternateRoots)",
        ]
        var arguments = [Self.program, "-config", directory["pebble.json"]]
        var processes: [Subprocess] = []
        switch options.validation {
        case .none:
            environment["PEBBLE_VA_ALWAYS_VALID"] = "1"
            dnsManagement = nil
        case .ports(let http, let tls):
            (settings["httpPort"], settings["tlsPort"]) = (http, tls)
            let (dns, management) = ("127.0.0.1:\(ports[2])", "127.0.0.1:\(ports[3])")
            arguments += ["-dnsserver", dns]
            dnsManagement = "http://" + management
            processes.append(
                try Self.run(
                    [
                        "/usr/bin/pebble-challtestsrv", "-dns01", dns, "-management", management, "-defaultIPv6", "",
                        "-http01", "", "-https01", "", "-tlsalpn01", "",
                    ], log: directory["dns.log"], environment: environment))
        }
        environment.merge(options.environment) { $1 }
        try directory.write(
            JSONSerialization.data(withJSONObject: ["pebble": settings], options: .withoutEscapingSlashes),
            to: "pebble.json")
        command = (arguments, environment)
        processes.append(try Self.run(arguments, log: directory["pebble.log"], environment: environment))
        self.processes = Mutex(processes)
        try waitFor(directoryURL)
        try waitFor(management + "/roots/0")
        if let dnsManagement { try waitFor(dnsManagement) }
    }

    /// Starts a program that ends with this process too, however that ends: its standard input is closed then.
    private static func run(_ arguments: [String], log: String, environment: [String: String]) throws -> Subprocess {
        let script = """
            exec 3<&0; log=$1; shift
            "$@" </dev/null >"$log" 2>&1 3<&- & pid=$!
            { read -r _; kill $pid; } <&3 >/dev/null 2>&1 &
            wait $pid
            """
        return try Subprocess(["/bin/sh", "-c", script, "sh", log] + arguments, environment: environment)
    }

    private func waitFor(_ url: String) throws {
        let end = ContinuousClock.now + .seconds(600)
        while (try? answer(url)) == nil {
            guard ContinuousClock.now < end, !processes.withLock({ $0.contains(where: \.hasEnded) }) else {
                throw Subprocess.Failure(description: "\(url) does not answer: \(log)")
            }
            usleep(10_000)
        }
    }

    /// An answer of any status comes from a server.
    private func answer(_ url: String) throws -> [UInt8] {
        try Subprocess.run(["curl", "--silent", "--show-error", "--cacert", serverCA, url], seconds: 60)
    }

    /// The server's log of its requests.
    public var log: String { (try? String(decoding: directory.read("pebble.log"), as: UTF8.self)) ?? "" }

    /// The root of its certificates.
    /// - Parameter index: Of an alternate chain.
    public func root(_ index: Int = 0) throws -> X509Certificate {
        let text = try String(decoding: answer("\(management)/roots/\(index)"), as: UTF8.self)
        return try X509Certificate(derRepresentation: PEMDocument(pemString: text).derBytes)
    }

    /// Ends the server. Clients find its port closed.
    public func stop() { processes.withLock { for process in $0 { process.stop() } } }

    /// Starts the server anew, at the same URL: it knows no account, order or certificate of before, and has new authorities.
    public func restart() async throws {
        try await Self.threads.run { () throws(ProviderError) in
            do {
                try self.processes.withLock { processes in
                    processes.removeLast().stop()
                    processes.append(
                        try Self.run(
                            self.command.arguments, log: self.directory["pebble.log"],
                            environment: self.command.environment))
                }
                try self.waitFor(self.directoryURL)
                try self.waitFor(self.management + "/roots/0")
            } catch { throw ProviderError(.internal, "\(error)") }
        }
    }

    /// The server's record of a certificate.
    public struct CertificateStatus: Decodable, Sendable {
        /// `Valid` or `Revoked`.
        public let status: String
        /// The reason of its revocation (RFC 5280, section 5.3.1).
        public let reason: Int?
        private enum CodingKeys: String, CodingKey { case status = "Status", reason = "Reason" }
    }

    /// - Parameter serial: In hexadecimal.
    public func status(ofSerial serial: String) throws -> CertificateStatus {
        let answer = try answer("\(management)/cert-status-by-serial/\(serial)")
        return try JSONDecoder().decode(CertificateStatus.self, from: Data(answer))
    }
}

extension Identity {
    /// The key in PEM, PKCS#8, where it can be had.
    fileprivate func pkcs8PEM() throws -> String {
        guard let key = try key.exporter?.pkcs8Representation().withUnsafeBytes({ Data($0) }) else {
            throw Subprocess.Failure(description: "the key cannot be exported")
        }
        return "-----BEGIN PRIVATE KEY-----\n"
            + key.base64EncodedString(options: [.lineLength64Characters, .endLineWithLineFeed])
            + "\n-----END PRIVATE KEY-----\n"
    }
}
