import CertificateProviding
import Crypto
import Enrolment
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// The accepted part of a server's answer, and the stored part of it.
@Suite struct IssuedCertificateTests {
    private let root = Result { try TestParty("root") }
    private let issuing = Result { try TestParty("issuing") }
    private let request: EnrolmentRequest

    init() async throws { request = try await .testing("CN=client", names: [], key: TestKeys.makeP256()) }

    private func leaf(
        by issuer: TestParty, isAuthority: Bool = false, _ extensions: [Certificate.Extension] = []
    ) throws -> X509Certificate {
        let spki = PEMDocument(type: "PUBLIC KEY", derBytes: request.key.publicKey.derRepresentation)
        return try issuer.certify(
            Certificate.PublicKey(pemDocument: spki), as: DistinguishedName { CommonName("client") },
            isAuthority: isAuthority, extensions)
    }

    private func refusal(_ certificates: [X509Certificate]) async throws -> String {
        let authorities = [try root.get().certify()]
        let error = await #expect(throws: ProviderError.self) {
            _ = try await IssuedCertificate(certificates, for: request, from: authorities, at: Date())
        }
        #expect(error?.code == .protocolError)
        return error?.message ?? ""
    }

    @Test func theStoredChainIsTheValidatedOne() async throws {
        let leaf = try leaf(by: issuing.get())
        let right = try root.get().certify(issuing.get(), lifetime: 3600)
        // Of the same name, with another key, and valid for longer.
        let namesake = try root.get().certify(TestParty("issuing"))
        for bag in [[leaf, right, namesake], [namesake, right, leaf]] {
            let issued = try await IssuedCertificate(bag, for: request, from: [root.get().certify()], at: Date())
            #expect(issued.chain == [leaf, right])
        }
    }

    /// If the server names its issuing authority, too, the path ends there.
    @Test("The chain is complete below the root even if the server also names an intermediate")
    func theChainGoesOnBelowTheRoot() async throws {
        let upper = try TestParty("upper")
        let leaf = try leaf(by: issuing.get())
        let chain = [leaf, try upper.certify(issuing.get()), try root.get().certify(upper)]
        let namesakes = [try TestParty("upper").certify(issuing.get()), try root.get().certify(TestParty("upper"))]
        let authorities = [chain[1], try root.get().certify()]
        let issued = try await IssuedCertificate(
            namesakes + chain, for: request, from: authorities, at: Date())
        #expect(issued.chain == chain)
    }

    /// Some servers name their root and nothing else, and a user who configures that root has the intermediates.
    @Test("A configured intermediate completes the chain but is not a trust anchor")
    func aConfiguredCertificateMayLieBetween() async throws {
        let (leaf, between) = (try leaf(by: issuing.get()), try root.get().certify(issuing.get()))
        #expect(try await refusal([leaf]).contains("is not among the server's authorities"))
        let authorities = [try root.get().certify()]
        let issued = try await IssuedCertificate(
            [leaf], for: request, from: authorities, through: [between], at: Date())
        #expect(issued.chain == [leaf, between])
        // It is not a trust anchor itself.
        let other = try TestParty("other")
        await #expect(throws: ProviderError.self) {
            try await IssuedCertificate(
                [self.leaf(by: other)], for: request, from: authorities, through: [other.certify()], at: Date())
        }
    }

    @Test("Duplicate certificates in an answer are dropped")
    func whatIsThereTwiceIsThereOnce() async throws {
        let authority = try root.get().certify()
        let leaf = try leaf(by: root.get())
        let bag = try OpenSSLCommand.bag(of: [leaf, authority, leaf, authority])
        #expect(try CertificateBag.certificates(in: bag).count == 2)
        let issued = try await IssuedCertificate([leaf, leaf], for: request, from: [authority], at: Date())
        #expect(issued.chain == [leaf])
    }

    @Test("A CA certificate is refused as the issued certificate")
    func anAuthorityIsNotWhatWasAskedFor() async throws {
        #expect(try await refusal([leaf(by: root.get(), isAuthority: true)]).contains("is a CA certificate"))
    }

    @Test(
        "The extended key usage of an intermediate, and of the root, restricts what it issues",
        arguments: [false, true])
    func anAuthorityRestrictsWhatItIssues(isRoot: Bool) async throws {
        let forServers = try Certificate.Extension(ExtendedKeyUsage([.serverAuth]), critical: false)
        let leaf = try leaf(by: issuing.get())
        let between = try root.get().certify(issuing.get(), isRoot ? [] : [forServers])
        let authorities = [try root.get().certify(nil, isRoot ? [forServers] : [])]
        for usage in IdentityUsage.sidesOfTLS {
            do {
                let issued = try await IssuedCertificate(
                    [leaf, between], for: request, usage: usage, from: authorities, at: Date())
                #expect(usage == .server && issued.chain == [leaf, between])
            } catch let error as ProviderError {
                #expect(usage != .server && error.code == .protocolError)
                #expect(
                    error.message.contains(
                        "'CN=\(isRoot ? "root" : "issuing"),O=certprov tests' in its chain does not permit TLS client authentication"
                    ), "\(error)")
            }
        }
    }

    @Test("The error says why the chain is not valid")
    func whatIsWrongWithTheChainIsSaid() async throws {
        let expired = try root.get().certify(issuing.get(), lifetime: -60)
        #expect(try await refusal([leaf(by: issuing.get()), expired]).contains("expired on"))
        #expect(try await refusal([leaf(by: issuing.get())]).contains("not among the server's authorities"))
    }

    /// Nothing that only programmers understand.
    @Test(arguments: [("md5", "MD5"), ("sha1", "SHA-1")]) func oldSignaturesAreNamed(digest: String, name: String)
        async throws
    {
        let folder = try TemporaryDirectory()
        let pkcs8 = try TestKeys.rsa.get().pkcs8Representation().withUnsafeBytes { Array($0) }
        try folder.write(PEMDocument(type: "PRIVATE KEY", derBytes: pkcs8).pemString.utf8, to: "key")
        try Subprocess.openssl(
            "req", "-x509", "-new", "-key", "key", "-\(digest)", "-subj", "/O=Example/CN=device", "-days", "1",
            "-addext", "basicConstraints=critical,CA:FALSE", "-addext", "subjectAltName=DNS:device.example",
            "-outform", "DER", "-out", "leaf", in: folder.path)
        let leaf = try X509Certificate(derRepresentation: folder.read("leaf"))
        let request = try await EnrolmentRequest.testing("CN=device,O=Example", key: TestKeys.rsa.get())
        let error = await #expect(throws: ProviderError.self) {
            _ = try await IssuedCertificate([leaf], for: request, from: [leaf], at: Date())
        }
        #expect(error?.message.contains(name) == true)
        #expect(error?.message.contains("swift") == false)
    }
}
