import CertificateProviding
import Enrolment
import Foundation
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// The responder that other tests enrol with, before clients that are not ours: strongSwan's, curl and OpenSSL.
@Suite(.timeLimit(.minutes(20))) struct ESTResponderTests {
    /// Has a responder listen on the loopback interface, with the handlers that it has in memory.
    private func listening<T>(
        _ responder: ESTResponder, _ body: (_ url: String, _ folder: String) throws -> T
    ) async throws -> T {
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try responder.prepare(channel) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        defer { listener.close(promise: nil) }
        return try body("https://localhost:\(listener.localAddress?.port ?? 0)", responder.directory.path)
    }

    @Test func strongSwanEnrols() async throws {
        // pki reads base64 in one line only, and its path has no room for a label.
        let responder = try ESTResponder(.basic, .init(fault: "unwrapped+cacerts-unwrapped"))
        let folder = responder.directory
        try await listening(responder) { url, path in
            func pki(_ arguments: String...) throws -> [UInt8] { try Subprocess.run(["pki"] + arguments, in: path) }
            for name in ["old", "new"] {
                try folder.write(
                    pki("--gen", "--type", "ecdsa", "--size", "256", "--outform", "pem"), to: "\(name).key")
                let csr = try pki(
                    "--req", "--type", "ecdsa", "--in", "\(name).key", "--dn", "CN=device, O=Example", "--san",
                    "device.example")
                try folder.write(csr, to: "\(name).csr")
            }
            _ = try pki(
                "--estca", "--url", url, "--cacert", "ca.pem", "--caout", "got.pem", "--outform", "pem", "--force")
            for (own, got) in [("ca.pem", "got.pem"), ("intermediate.pem", "got-1.pem")] {
                #expect(try CertificateFile.read(folder[own]) == CertificateFile.read(folder[got]))
            }
            func est(_ csr: String, _ credentials: String..., into file: String) throws {
                let fixed = [
                    "pki", "--est", "--url", url, "--cacert", "ca.pem", "--cacert", "intermediate.pem", "--outform",
                    "pem", "--in", csr,
                ]
                try folder.write(Subprocess.run(fixed + credentials, in: path), to: file)
                try Subprocess.openssl(
                    "verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.pem", "-untrusted",
                    "intermediate.pem", file, in: path)
            }
            #expect(throws: Subprocess.Failure.self) {
                try est("old.csr", "--userpass", "estuser:wrong", into: "none.pem")
            }
            try est("old.csr", "--userpass", "\(ESTServer.user):\(ESTServer.password)", into: "old.pem")
            try est("new.csr", "--cert", "old.pem", "--key", "old.key", into: "new.pem")
            let certificate = try #require(try CertificateFile.read(folder["new.pem"]).first)
            #expect(certificate.subjectAlternativeNames == [.dns("device.example")])
        }
        #expect(responder.issued == 2)
        let operations = responder.requests.filter { $0.serial != nil }.map(\.operation)
        #expect(operations == [.simpleenroll, .simplereenroll])
    }

    @Test(arguments: [(ESTAuthentication.basic, ["--basic"]), (.digest, ["--digest"])])
    func curlEnrols(authentication: ESTAuthentication, options: [String]) async throws {
        let responder = try ESTResponder(authentication, .init(wishes: ["key:ec:P-256"], pending: 1, retryAfter: "7"))
        let folder = responder.directory
        try await listening(responder) { url, path in
            try Subprocess.openssl(
                "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem",
                "-subj", "/O=Example/CN=device", "-outform", "DER", "-out", "csr", in: path)
            try folder.write(Data(try folder.read("csr")).base64EncodedData(), to: "csr.b64")
            /// - Returns: The status.
            func curl(_ operation: String, _ options: [String] = []) throws -> Int {
                let fixed = ["curl", "-sS", "--cacert", "ca.pem", "-o", "body", "-D", "head", "-w", "%{http_code}"]
                let target = ["\(url)/.well-known/est/\(operation)"]
                return Int(String(decoding: try Subprocess.run(fixed + options + target, in: path), as: UTF8.self)) ?? 0
            }
            /// The certificates of the answer, as OpenSSL reads them.
            func bag() throws -> [X509Certificate] {
                let der = try #require(
                    Data(base64Encoded: Data(folder.read("body")), options: .ignoreUnknownCharacters))
                try folder.write(der, to: "bag")
                try Subprocess.openssl(
                    "pkcs7", "-inform", "DER", "-in", "bag", "-print_certs", "-out", "bag.pem", in: path)
                return try CertificateFile.read(folder["bag.pem"])
            }
            #expect(try curl("cacerts") == 200)
            #expect(try bag() == responder.authority.certificates.reversed())
            #expect(try curl("csrattrs") == 200)
            let post = ["-H", "Content-Type: application/pkcs10", "--data-binary", "@csr.b64"] + options
            #expect(try curl("simpleenroll", post + ["-u", "estuser:wrong"]) == 401)
            #expect(try curl("simpleenroll", post) == 401)
            let right = post + ["-u", "\(ESTServer.user):\(ESTServer.password)"]
            #expect(try curl("simpleenroll", right) == 202)
            let head = String(decoding: try folder.read("head"), as: UTF8.self)
            #expect(head.contains("\r\nRetry-After: 7\r\n"))
            #expect(try curl("simpleenroll", right) == 200)
            let certificates = try bag()
            let leaf = try #require(certificates.last)
            try folder.write(leaf.pemRepresentation.utf8, to: "leaf.pem")
            try Subprocess.openssl(
                "verify", "-x509_strict", "-purpose", "sslclient", "-CAfile", "ca.pem", "-untrusted",
                "intermediate.pem", "leaf.pem", in: path)
            #expect(certificates.count == 2 && leaf.subject == "CN=device,O=Example")
            // Without the certificate there is nothing to renew.
            #expect(try curl("simplereenroll", post) == 403)
            #expect(try curl("simplereenroll", post + ["--cert", "leaf.pem", "--key", "key.pem"]) == 200)
        }
        #expect(responder.issued == 2)
    }

    @Test func anAddressWithoutAServerRefuses() async throws {
        let responder = try ESTResponder(.basic)
        _ = try await responder.provider().getCertificate(NoUserInteraction())
        #expect(responder.network.connectionCount == 1)
        let elsewhere = try responder.provider(["url": "https://localhost:1"])
        let error = await #expect(throws: ProviderError.self) {
            try await elsewhere.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .unavailable && error?.message.contains("refused") == true)
        #expect(responder.network.connectionCount == 1)
    }

    /// A fault that is misspelt would be no fault.
    @Test("The test responder refuses an unknown fault name")
    func aFaultThatThereIsNotIsRefused() async throws {
        let responder = try ESTResponder()
        let provider = try responder.provider(label: "fault-hung")
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(ESTFault.all(in: "fault-hung") == nil && ESTFault.all(in: "fault-hang*x") == nil)
        let faults = ESTFault.all(in: "fault-cacerts-status-503-retry-5*1+not-yet-valid-60")
        #expect(faults?.map(\.name) == [.status, .notYetValid] && faults?.map(\.argument) == ["503-retry-5", "60"])
        #expect(faults?.map(\.operation) == [.cacerts, nil] && faults?.map(\.times) == [1, nil])
    }
}
