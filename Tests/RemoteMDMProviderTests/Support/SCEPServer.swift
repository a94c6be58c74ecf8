import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import TestSupport

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// Debian's `scepserver` with a CA of its own. Ends with its last user.
final class SCEPServer: Sendable {
    struct Failure: Error, CustomStringConvertible { var description: String }

    static let challenge = "correct horse"

    let depot: TemporaryDirectory
    let port: Int
    let authority: X509Certificate
    private let process: Subprocess

    init(_ options: [String] = ["-challenge", challenge, "-allowrenew", "0"]) throws {
        depot = try TemporaryDirectory()
        let folder = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        let program = folder.appending(path: "SCEPServer/scep-server").path
        process = try Subprocess([program, "--depot", depot.path] + options)
        guard let line = process.readLine(),
            let ready = try? JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Int],
            let port = ready["port"]
        else {
            throw Failure(description: "scepserver did not start; is the package scep installed?")
        }
        self.port = port
        let pem = String(decoding: try depot.read("ca.pem"), as: UTF8.self)
        authority = try X509Certificate(pem: pem)
    }

    /// Ends the server, and waits for that.
    func stop() { process.stop() }

    var url: String { "http://127.0.0.1:\(port)/scep" }
    var log: String { (try? depot.read("log")).map { String(decoding: $0, as: UTF8.self) } ?? "" }

    /// One connection a request, over plain HTTP.
    var transport: SCEPClient.Transport {
        { [port] request async throws(ProviderError) in
            guard let url = ServerURL("http://127.0.0.1:\(port)") else {
                throw ProviderError(.internal, "no URL")
            }
            let security = ServerSecurity(
                trust: ServerTrust(trustAnchors: .system), credentials: nil, now: { Date() })
            let session = AuthenticatingSession(url, security, .none)
            let response = try await session.response(to: request, before: .now() + .seconds(600))
            await session.close()
            return response
        }
    }
}

extension X509Certificate {
    init(pem: String) throws {
        let base64 = pem.split(separator: "\n").filter { !$0.hasPrefix("-----") }.joined()
        try self.init(derRepresentation: Array(Data(base64Encoded: base64) ?? Data()))
    }
}
