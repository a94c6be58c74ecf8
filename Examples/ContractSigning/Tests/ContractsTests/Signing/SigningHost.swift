import CertificateProviding
import CertprovKit
import Contracts
import Foundation
import IdentityStore
import Logging
import Logon
import Signing
import Testing

@testable import ContractServer

/// A host with a directory, a queue, and an identity in a PEM file.
final class SigningHost {
    let directory: URL
    let queue: ContractQueue

    init() throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "contracts-\(UUID().uuidString)")
        try FileManager.default.createDirectory(
            at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let store = IdentityStore(path: directory.appending(path: "state").path)
        queue = ContractQueue(
            storage: store.storage(for: ProviderID("contracts_")),
            documents: DocumentDirectory(path: directory.appending(path: "documents").path))
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
        try run(
            ["openssl", "req", "-x509"] + key + [
                "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/O=Example/CN=Example CA",
            ])
        try Data(
            "keyUsage=critical,digitalSignature,nonRepudiation\nextendedKeyUsage=clientAuth,emailProtection\n".utf8
        ).write(
            to: file("extensions"))
        try makeIdentity("alice", subject: "/CN=Alice")
    }

    /// The database of pdfsig, with the CA in it.
    var nss: String {
        get throws {
            if !FileManager.default.fileExists(atPath: file("nss").path) {
                try FileManager.default.createDirectory(at: file("nss"), withIntermediateDirectories: false)
                try run(["certutil", "-d", "sql:nss", "-N", "--empty-password"])
                try run(["certutil", "-d", "sql:nss", "-A", "-n", "ca", "-t", "CT,C,C", "-i", "ca.pem"])
            }
            return file("nss").path
        }
    }

    deinit { try? FileManager.default.removeItem(at: directory) }

    func file(_ name: String) -> URL { directory.appending(path: name) }

    /// The variables of programs. They get none of this process's, such as a language.
    var environment: [String: String] {
        ["PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": directory.path]
    }

    /// Runs a program in the directory.
    ///
    /// - Returns: Its output, of both streams.
    @discardableResult
    func run(_ arguments: [String], expecting status: Int32? = 0) throws -> String {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = arguments
        process.currentDirectoryURL = directory
        process.environment = environment
        let pipe = Pipe()
        (process.standardOutput, process.standardError, process.standardInput) = (pipe, pipe, FileHandle.nullDevice)
        try process.run()
        let output = try pipe.fileHandleForReading.readToEnd() ?? Data()
        process.waitUntilExit()
        let text = String(decoding: output, as: UTF8.self)
        if let status { #expect(process.terminationStatus == status, "\(arguments): \(text)") }
        return text
    }

    /// What a server gets of a contract that was signed here.
    func documents(of contract: Contract) throws -> SignedDocuments {
        SignedDocuments(
            original: try queue.content(of: contract.content.pdf.document),
            pdf: try queue.content(of: contract.version.pdf),
            evidence: try contract.approvals.map {
                (try queue.content(of: $0.evidence), try queue.content(of: $0.evidenceSignature))
            })
    }

    /// Makes another identity of the CA.
    func makeIdentity(_ name: String, subject: String) throws {
        try run([
            "openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", "-keyout",
            "\(name).key", "-out", "\(name).csr", "-subj", subject,
        ])
        try run([
            "openssl", "x509", "-req", "-in", "\(name).csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "1", "-out",
            "\(name).pem", "-extfile", "extensions",
        ])
    }

    /// The signer of an identity.
    func signer(_ name: String = "alice") async throws -> Signer {
        let store = IdentityStore(path: file("state").path)
        let parameters = ProviderParameters([
            "certificate": .init(file("\(name).pem").path), "key": .init(file("\(name).key").path),
            "usage": .init("signature"),
        ])
        let manager = try LogonManager(
            configuration: LogonConfiguration(providers: [
                ConfiguredProvider(id: ProviderID("pem"), parameters: parameters)
            ]), registry: try ProviderRegistry(CertprovLogon.providers, keyStores: CertprovLogon.keyStores)
        ) { id in
            ProviderEnvironment(
                storage: store.storage(for: id), logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() },
                executor: .threads(maximum: 1))
        }
        return try Signer(try await manager.identity(NoUserInteraction()))
    }

    /// Adds a contract to the queue.
    func add(
        mode: Int = 2, isComplete: Bool = true, contractors: [String] = [], isOrdered: Bool = false, pages: Int = 1
    ) async throws -> Contract {
        try queue.add(
            try await ContractFile.read(
                SampleFile.bytes(
                    isComplete: isComplete, mode: mode, contractors: contractors, isOrdered: isOrdered, pages: pages)))
    }
}
