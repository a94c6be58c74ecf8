import CertificateProviding
import Foundation
import ProviderTransport
import TestSupport
import Testing

@testable import Signing

/// The servers of `ca.py`, until they are stopped.
private final class AuthorityServers: Sendable {
    private let script: ServerScript
    var directory: TemporaryDirectory { script.directory }

    /// Those of all tests but the ones that stop them.
    static let shared = Result { try AuthorityServers() }

    init() throws { script = try ServerScript("ca.py") }

    func stop() { script.stop() }

    var intermediates: [X509Certificate] { get throws { try CertificateFile.read(directory["ca.pem"]) } }
    var root: X509Certificate { get throws { try CertificateFile.read(directory["root.pem"])[0] } }

    /// A signer of level B-LT, or B-T, whose chain is its leaf alone, unless another one is given: the rest comes from the servers.
    ///
    /// - Parameter timeout: For the validation data. A host that is busy needs longer than usual.
    func signer(
        _ name: String, isLongTerm: Bool = true, chain: [X509Certificate] = [], trust: TrustBundle? = nil,
        stampedBy stamper: String = "tsa", timeout: Duration = .seconds(600),
        now: @escaping @Sendable () -> Date = { Date() }
    ) throws -> Signer {
        let identity = try Identity(
            certificateChain: try CertificateFile.read(directory["\(name).pem"]) + chain,
            key: try SoftwareKey(pkcs8: SecretBytes(copying: try directory.read("\(name).p8")), location: .file),
            trust: trust, provenance: .init(provider: ProviderID("test")))
        // The token has the certificate of its signer alone.
        var stamps = try TimeStampServer("\(script.origin)/\(stamper)", anchors: try intermediates)
        stamps.timeout = .seconds(600)
        stamps.transport.retryPolicy.sleep = { _ in }
        var signer = try Signer(identity, timeStamps: stamps, isLongTerm: isLongTerm, now: now)
        signer.validationDataTimeout = timeout
        return signer
    }
}

/// Signatures with what verifies them when the servers of the CAs are gone.
@Suite struct ValidationDataTests {
    private let servers: AuthorityServers
    private let content = Array("content".utf8)

    init() throws { servers = try AuthorityServers.shared.get() }

    private static let tests = URL(filePath: #filePath).deletingLastPathComponent()
    private static let pyHanko = tests.deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: ".build/pyhanko/bin/python").path

    @Test(
        "pyHanko finds PDFs valid by their own data, with all servers stopped, and not without that data",
        .enabled(if: access(pyHanko, X_OK) == 0, "pyHanko was not run: make test installs it"))
    func pdf() async throws {
        let servers = try AuthorityServers()
        let root = try servers.root
        let once = try await servers.signer("signer").signedPDF(of: TestPDF.bytes)
        let twice = try await servers.signer("listed").signedPDF(of: once)
        servers.stop()
        let folder = try TemporaryDirectory()
        try folder.write(root.pemRepresentation.utf8, to: "root.pem")
        for (bytes, levels) in [(once, ["LTA_UPDATES"]), (twice, ["FORM_FILLING", "LTA_UPDATES"])] {
            #expect(bytes.starts(with: bytes == once ? TestPDF.bytes : once))
            try folder.write(bytes, to: "signed.pdf")
            func verdicts(_ more: String...) throws -> [String] {
                let script = Self.tests.appending(path: "validate-lt.py").path
                let command = [Self.pyHanko, "-B", script, folder["root.pem"], folder["signed.pdf"]] + more
                return String(decoding: try Subprocess.run(command), as: UTF8.self).split(separator: "\n").map(
                    String.init)
            }
            #expect(try verdicts() == levels.map { "True \($0)" })
            #expect(try verdicts("none") == levels.map { "False \($0)" })
            try Subprocess.run(["qpdf", "--check", folder["signed.pdf"]])
            // The chains go through the certificates in the document.
            let own = try await SignatureVerifier(anchors: [root]).pdf(SigningContent(bytes))
            #expect(own.map(\.coverage?.change) == levels.map { _ in .signatures }, "\(own)")
            #expect(own.allSatisfy { $0.holds && $0.timeSource == .timeStamp }, "\(own)")
        }
    }

    @Test(
        "OpenSSL finds the lists and the chain in CMS, and an OCSP answer makes it version 5",
        arguments: [
            "listed", "answered", "by-ca", "checked", "fallback", "second", "packed", "redirected", "never-revoked",
        ])
    func cms(name: String) async throws {
        let folder = try TemporaryDirectory()
        try folder.write(try servers.root.pemRepresentation.utf8, to: "root.pem")
        try folder.write(content, to: "content")
        for isLongTerm in [true, false] {
            let signer = try servers.signer(name, isLongTerm: isLongTerm)
            #expect(signer.level == (isLongTerm ? "B-LT" : "B-T"))
            try folder.write(try await signer.detachedCMS(of: SigningContent(content)), to: "message")
            let verify = [
                "openssl", "cms", "-verify", "-cades", "-binary", "-inform", "DER", "-in", "message", "-content",
                "content",
                "-CAfile", "root.pem", "-purpose", "any", "-out", "out",
            ]
            guard isLongTerm else {
                // The CA is not in it.
                #expect(throws: Subprocess.Failure.self) { try Subprocess.run(verify, in: folder.path) }
                continue
            }
            try Subprocess.run(verify, in: folder.path)
            let text = String(
                decoding: try Subprocess.run(
                    ["openssl", "cms", "-cmsout", "-print", "-inform", "DER", "-in", "message"], in: folder.path),
                as: UTF8.self)
            // The time stamp has an OCSP answer in each case.
            #expect(text.contains("d.signedData:") && text.contains("version: 5"), "\(text)")
            #expect(text.contains("1.3.6.1.5.5.7.16.2"), "\(text)")
            // OpenSSL takes lists from the message, and knows no answers in it.
            if name == "listed" { try Subprocess.run(verify + ["-crl_check_all"], in: folder.path) }
            if name == "answered" {
                let failure = #expect(throws: Subprocess.Failure.self) {
                    try Subprocess.run(verify + ["-crl_check"], in: folder.path)
                }
                #expect(failure?.description.contains("unable to get certificate CRL") == true)
            }
            #expect(
                try await SignatureVerifier(anchors: [try servers.root]).cms(
                    try folder.read("message"), content: SigningContent(content)
                ).holds)
        }
    }

    static let faults: [(String, ProviderError.Code, String)] = [
        ("bare", .certificateNotUsable, "names no URL of it"),
        ("revoked", .certificateNotUsable, "is revoked since 2025-01-01"),
        ("revoked-list", .certificateNotUsable, "is revoked by it"), ("missing", .protocolError, "status 404"),
        ("missing-list", .protocolError, "status 404"), ("stranger", .protocolError, "its signature is not accepted"),
        ("client", .protocolError, "its signature is not accepted"),
        ("other", .protocolError, "about another certificate"),
        ("cut", .protocolError, "damaged"), ("sha1", .protocolError, "SHA-1"), ("large", .protocolError, "65536"),
        ("unauthorized", .protocolError, "unauthorized"), ("root-list", .protocolError, "not signed by 'CN=ca'"),
        ("overdue-list", .protocolError, "overdue"), ("early-list", .protocolError, "begins later"),
        ("sha1-list", .protocolError, "SHA-1"), ("loop", .certificateNotUsable, "comes back to 'CN=loop-a'"),
        ("pem-list", .protocolError, "not a list in DER"), ("gone", .unavailable, "127.0.0.1:1"),
        ("redirected-away", .protocolError, "redirects to 'http://localhost:1/ocsp'"),
        ("unchecked", .protocolError, "not known whether its signer is revoked"),
        ("revoked-responder", .protocolError, "'CN=ocsp-revoked'"),
    ]

    @Test(
        "Data that cannot be had, or is wrong, is an error that names it, and there is no signature", arguments: faults)
    func refusals(name: String, code: ProviderError.Code, says: String) async throws {
        let signer = try servers.signer(name)
        for error in [
            await failure { try await signer.detachedCMS(of: SigningContent(content)) },
            await failure { try await signer.signedPDF(of: TestPDF.bytes) },
        ] {
            #expect(error?.code == code && error?.reason == .validationData, "\(String(describing: error))")
            #expect(
                error?.message.contains(says) == true && error?.message.contains("'CN=\(name)'") == true,
                "\(String(describing: error))")
        }
    }

    @Test("Answers and lists that are overdue by this host's clock do not count", arguments: ["answered", "listed"])
    func overdue(name: String) async throws {
        let signer = try servers.signer(name, now: { Date() + 5 * 86400 })
        let error = await failure { try await signer.detachedCMS(of: SigningContent(content)) }
        #expect(
            error?.code == .protocolError && error?.message.contains("overdue") == true, "\(String(describing: error))")
    }

    @Test("The root of a CA that names no URL of it comes from the identity: its chain, or its trust bundle")
    func privateRoot() async throws {
        let (root, chain) = (try servers.root, try CertificateFile.read(servers.directory["private-ca.pem"]))
        let error = await failure {
            try await servers.signer("private", chain: chain).detachedCMS(of: SigningContent(content))
        }
        #expect(error?.code == .certificateNotUsable && error?.message.contains("'CN=root'") == true)
        for signer in [
            try servers.signer("private", chain: chain + [root]),
            try servers.signer("private", chain: chain, trust: TrustBundle([root])),
        ] {
            let message = try await signer.detachedCMS(of: SigningContent(content))
            let verdict = try await SignatureVerifier(anchors: [root]).cms(message, content: SigningContent(content))
            #expect(verdict.holds && verdict.otherCertificates.contains(root), "\(verdict)")
        }
    }

    @Test("A time stamp of a server whose certificate is revoked is an error")
    func revokedStamp() async throws {
        let signer = try servers.signer("answered", stampedBy: "tsa-revoked")
        let error = await failure { try await signer.detachedCMS(of: SigningContent(content)) }
        #expect(error?.code == .certificateNotUsable && error?.reason == .validationData)
        #expect(error?.message.contains("'CN=tsa-revoked'") == true, "\(String(describing: error))")
    }

    @Test("A server that never answers costs a bounded time, and the next one is asked for a part of it")
    func hanging() async throws {
        let chain = try servers.intermediates
        let alone = try servers.signer("hanging", chain: chain, timeout: .seconds(1))
        let error = await failure { try await alone.detachedCMS(of: SigningContent(content)) }
        #expect(error?.code == .timedOut && error?.reason == .validationData, "\(String(describing: error))")
        #expect(error?.message.contains("'CN=hanging'") == true, "\(String(describing: error))")
        // Two servers hang, a quarter of the rest of the time each.
        let listed = try servers.signer("hanging-listed", chain: chain, timeout: .seconds(24))
        _ = try await listed.detachedCMS(of: SigningContent(content))
    }

    @Test("Validation data needs a time stamp")
    func withoutTimeStamp() throws {
        let identity = try TestAuthority().issue("signer")
        let error = failure { try Signer(identity, isLongTerm: true) }
        #expect(error?.code == .configurationInvalid && error?.message.contains("time stamp") == true)
    }
}
