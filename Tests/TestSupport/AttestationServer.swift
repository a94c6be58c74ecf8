import CertificateProviding
import Foundation

/// The attestation server of the examples, which may break a rule.
public final class AttestationServer: Sendable {
    public let directory: TemporaryDirectory
    private let process: Subprocess
    /// Those of the key store.
    public let parameters: [String: String]

    /// - Parameter tpm: May enrol, as `SN-0017`.
    public init(listing tpm: SoftwareTPM? = nil, flaw: String = "none") throws {
        directory = try TemporaryDirectory()
        let key = try tpm.map { try $0.endorsementKey() } ?? []
        try Self.list(key, in: directory)
        let tests = URL(filePath: #filePath).deletingLastPathComponent()
        process = try Subprocess([
            "python3", "-B", tests.appending(path: "flawed-attestation-server.py").path,
            tests.appending(path: "../../Examples/AttestationServer/attestation-server").standardized.path,
            directory.path, flaw,
        ])
        guard let url = process.readLine()?.firstMatch(of: /https:[^ ]*(?=\/directory)/)?.output else {
            throw Subprocess.Failure(description: "the attestation server does not start")
        }
        parameters = [
            "attestation-url": String(url), "attestation-trust-anchors": directory["ca.pem"],
        ]
    }

    /// A property file of the device, but for the settings of its TPM.
    public var configuration: String {
        let provider = [
            "directory": parameters["attestation-url", default: ""] + "/directory",
            "trust-anchors": directory["ca.pem"],
            "challenge": "device-attest-01", "identifiers": "permanent-identifier:SN-0017", "key": "tpm:",
        ]
        return "CertificateProvider = acme\n"
            + provider.map { "CertificateProvider.acme.\($0) = \($1)\n" }.joined()
            + parameters.map { "KeyStore.tpm.\($0) = \($1)\n" }.joined()
    }

    /// Lets it hang.
    public func stop() { process.send(SIGSTOP) }

    /// Ends it.
    public func kill() {
        process.kill()
        _ = process.wait(seconds: 10)
    }

    /// Lists another key, or certificate, in place of the one before. DER.
    public func list(_ endorsement: [UInt8]) throws { try Self.list(endorsement, in: directory) }

    private static func list(_ endorsement: [UInt8], in directory: TemporaryDirectory) throws {
        let hash = DisplayText.hexadecimal(DigestAlgorithm.sha256.digest(of: endorsement))
        try directory.write("\(hash) SN-0017\n".utf8, to: "devices")
    }

    /// How many of its decisions begin so.
    public func count(_ beginning: String) -> Int {
        let log = (try? directory.read("log")) ?? []
        return String(decoding: log, as: UTF8.self).split(separator: "\n").count { $0.hasPrefix(beginning) }
    }
}

extension SoftwareTPM {
    /// The endorsement key, a SubjectPublicKeyInfo.
    public func endorsementKey() throws -> [UInt8] {
        let directory = try TemporaryDirectory()
        try run("tpm2_createek", "-c", directory["context"], "-G", "rsa", "-f", "pem", "-u", directory["ek"])
        try run("tpm2_flushcontext", "-t")
        return try Subprocess.run(["openssl", "pkey", "-pubin", "-in", directory["ek"], "-outform", "DER"])
    }
}
