import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// A host with an identity store and a property file of its own, for the command that is built beside the tests.
final class Host: Sendable {
    let directory: TemporaryDirectory
    private let entrance: [String]
    private let variables: [String: String]

    static func program(_ name: String) -> String {
        if let directory = ProcessInfo.processInfo.environment["CERTPROV_TEST_PROGRAMS"] {
            return "\(directory)/\(name)"
        }
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        return URL(filePath: own).deletingLastPathComponent().appending(path: name).path
    }

    /// - Parameter entrance: What starts programs, such as `nsenter` with its options.
    init(entrance: [String] = [], variables: [String: String] = [:]) throws {
        directory = try TemporaryDirectory()
        for name in ["state", "home", "plugins"] { try directory.make(name) }
        (self.entrance, self.variables) = (entrance, variables)
    }

    /// Writes the property file.
    ///
    /// - Parameter parameters: Of the provider, beside the server's. `nil` leaves a parameter out.
    func configure(_ server: Pebble, _ parameters: [String: String?]) throws {
        try configure(
            [
                "directory": server.directoryURL, "trust-anchors": server.serverCA, "agree-terms": "true",
                "proxy": "none",
            ].merging(parameters) { $1 })
    }

    func configure(_ parameters: [String: String?]) throws {
        let lines = parameters.compactMap { name, value in value.map { "CertificateProvider.acme.\(name) = \($0)\n" } }
        let head = "PluginDirectory = \(directory["plugins"])\nCertificateProvider = acme\n"
        try directory.write((head + lines.sorted().joined()).utf8, to: "client.properties")
    }

    /// Starts the command with the property file.
    func start(_ arguments: [String]) throws -> Subprocess {
        let command = [Self.program("certprov")] + arguments + ["--config", directory["client.properties"]]
        var environment = [
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
            "HOME": directory["home"], "XDG_STATE_HOME": directory["state"],
        ]
        environment.merge(variables) { $1 }
        return try Subprocess(entrance + command, environment: environment, in: nil, .captured(), seconds: 600)
    }

    @discardableResult
    func certprov(_ arguments: String...) throws -> Output { try start(arguments).wait() }

    /// Enrols, and has `openssl` judge the certificate.
    ///
    /// - Returns: What is in the certificate.
    @discardableResult
    func enrol(
        _ root: X509Certificate, for purpose: String = "sslclient", _ options: String...,
        sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        let fetched = try start(["fetch", "--out", directory["out"]] + options).wait()
        try #require(fetched.status == 0, "\(fetched)", sourceLocation: sourceLocation)
        return try judge(root, for: purpose)
    }

    func judge(_ root: X509Certificate, for purpose: String = "sslclient") throws -> String {
        try directory.write(root.pemRepresentation.utf8, to: "root.pem")
        let leaf = directory["out/current/certificate.pem"]
        try Subprocess.run([
            "openssl", "verify", "-purpose", purpose, "-CAfile", directory["root.pem"], "-untrusted",
            directory["out/current/chain.pem"], leaf,
        ])
        return String(decoding: try Subprocess.run(["openssl", "x509", "-in", leaf, "-noout", "-text"]), as: UTF8.self)
    }

    /// The serial number of the certificate that was written last, in hexadecimal.
    var serial: String {
        get throws {
            let line = try Subprocess.run([
                "openssl", "x509", "-in", directory["out/current/certificate.pem"], "-noout", "-serial",
            ])
            return String(decoding: line, as: UTF8.self).trimmingCharacters(in: .newlines).replacing(
                "serial=", with: "")
        }
    }

    /// Connects to a server that demands a certificate of ``judge(_:for:)``'s root.
    ///
    /// - Parameters:
    ///   - chain: PEM files of the server's certificate, chain and key.
    ///   - anchors: By which the command knows the server.
    func connectMutually(to name: String, _ chain: (String, String, String), anchors: String) throws -> Output {
        let server = try Subprocess(
            entrance + [
                "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", chain.0, "-cert_chain", chain.1, "-key",
                chain.2, "-CAfile", directory["root.pem"], "-Verify", "4", "-verify_return_error", "-www",
            ])
        defer { server.stop() }
        var port: Substring?
        while port == nil, let line = server.readLine() {
            if line.hasPrefix("ACCEPT") { port = line.split(separator: ":").last }
        }
        return try certprov(
            "connect", "127.0.0.1:\(try #require(port))", "--server-name", name, "--trust-anchors", anchors, "--http")
    }
}

extension TemporaryDirectory {
    func make(_ name: String) throws {
        try FileManager.default.createDirectory(atPath: self[name], withIntermediateDirectories: true)
    }

    func text(_ name: String) -> String { (try? String(decoding: read(name), as: UTF8.self)) ?? "" }
}

/// A token, as `Tests/TokenHosts/token-host` keeps it for as long as this object lives.
final class Token: Sendable {
    let directory: TemporaryDirectory
    let variables: [String: String]
    private let process: Subprocess

    init(_ module: String) throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "TokenHosts/token-host").path
        process = try Subprocess([script, module, directory.path])
        var variables: [String: String] = [:]
        while let line = process.readLine(), line != "ready" {
            guard line.hasPrefix("variable ") else { continue }
            let parts = line.dropFirst("variable ".count).split(separator: "=", maxSplits: 1).map(String.init)
            variables[parts[0]] = parts[1]
        }
        try #require(!process.hasEnded, "the token \(module) does not start")
        self.variables = variables
    }

    deinit {
        process.closeInput()
        _ = process.wait(seconds: 10)
        process.stop()
    }

    var uri: String { "pkcs11:token=host?module-name=token" }
    var pinSource: String { "file:\(directory["pin"])" }
}

/// A network of its own, with loopback only, where ports 80 and 443 are free.
final class Network: Sendable {
    /// Only root can make one.
    static let isPossible = geteuid() == 0 && (try? Subprocess.run(["unshare", "--net", "true"])) != nil
    static let whyNot: Comment = "only root can make a network namespace, where port 80 is free"
    private let process: Subprocess

    init() throws {
        process = try Subprocess(["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec cat"])
        try #require(process.readLine() == "up", "a network namespace cannot be made")
    }

    /// The command that starts a program there.
    var entrance: [String] { ["nsenter", "--net=/proc/\(process.pid)/ns/net"] }

    /// Runs a program there to its end.
    @discardableResult
    func run(_ arguments: String...) throws -> String {
        String(decoding: try Subprocess.run(entrance + arguments), as: UTF8.self)
    }
}

/// A program that `make test` has installed below the build folder.
func installed(_ path: String) -> String {
    URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: ".build/\(path)").path
}
