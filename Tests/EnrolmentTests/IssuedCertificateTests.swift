import CertificateProviding
import Crypto
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

/// The accepted part of a server's answer, and the stored part of it.
@Suite struct IssuedCertificateTests {
    private let root = Result { try TestParty("root") }
    private let issuing = Result { try TestParty("issuing") }
    private let key = P256.Signing.PrivateKey().publicKey

    private func leaf(
        by issuer: TestParty, isAuthority: Bool = false, named name: DistinguishedName? = nil,
        _ extensions: [Certificate.Extension] = []
    ) throws -> X509Certificate {
        let name = try name ?? DistinguishedName { CommonName("client") }
        return try issuer.certify(.init(key), as: name, isAuthority: isAuthority, extensions)
    }

    /// Checks an answer to a request for `CN=client`.
    private func check(
        _ certificates: [X509Certificate], usage: IdentityUsage = .client, from authorities: [X509Certificate],
        through intermediates: [X509Certificate] = []
    ) async throws -> IssuedCertificate {
        try await IssuedCertificate(
            certificates, for: PublicKeyInfo(derRepresentation: Array(key.derRepresentation)),
            .init(subject: "CN=client"), usage: usage,
            from: authorities, through: intermediates, at: Date())
    }

    private func refusal(_ certificates: [X509Certificate], usage: IdentityUsage = .client) async throws -> String {
        let authorities = [try root.get().certify()]
        let error = await #expect(throws: ProviderError.self) {
            _ = try await check(certificates, usage: usage, from: authorities)
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
            let issued = try await check(bag, from: [root.get().certify()])
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
        let issued = try await check(namesakes + chain, from: authorities)
        #expect(issued.chain == chain)
    }

    /// Some servers name their root and nothing else, and a user who configures that root has the intermediates.
    @Test("A configured intermediate completes the chain but is not a trust anchor")
    func aConfiguredCertificateMayLieBetween() async throws {
        let (leaf, between) = (try leaf(by: issuing.get()), try root.get().certify(issuing.get()))
        #expect(try await refusal([leaf]).contains("is not among the server's authorities"))
        let authorities = [try root.get().certify()]
        let issued = try await check([leaf], from: authorities, through: [between])
        #expect(issued.chain == [leaf, between])
        // It is not a trust anchor itself.
        let other = try TestParty("other")
        await #expect(throws: ProviderError.self) {
            try await check([self.leaf(by: other)], from: authorities, through: [other.certify()])
        }
    }

    @Test("Duplicate certificates in an answer are dropped")
    func whatIsThereTwiceIsThereOnce() async throws {
        let authority = try root.get().certify()
        let leaf = try leaf(by: root.get())
        let issued = try await check([leaf, leaf, authority, authority], from: [authority])
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
                let issued = try await check([leaf, between], usage: usage, from: authorities)
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

    @Test("A certificate for servers alone is refused for the other usages", arguments: IdentityUsage.sidesOfTLS)
    func aCertificateForServers(usage: IdentityUsage) async throws {
        let forServers = try Certificate.Extension(ExtendedKeyUsage([.serverAuth]), critical: false)
        let leaf = try leaf(by: root.get(), [forServers])
        guard usage != .server else {
            #expect(try await check([leaf], usage: usage, from: [root.get().certify()]).chain == [leaf])
            return
        }
        let reason =
            "it does not permit TLS client authentication, by its extended key usage, which usage=\(usage) needs"
        #expect(try await refusal([leaf], usage: usage).contains(reason))
    }

    @Test("A certificate without any name is refused")
    func someNameIsNeeded() async throws {
        let nameless = try leaf(by: root.get(), named: DistinguishedName())
        #expect(
            try await refusal([nameless]).contains("it has no name: the server has dropped the subject 'CN=client'"))
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
        try Subprocess.openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-keyout", "key", "-\(digest)", "-subj", "/CN=client",
            "-days",
            "1", "-addext", "basicConstraints=critical,CA:FALSE", "-outform", "DER", "-out", "leaf", in: folder.path)
        let leaf = try X509Certificate(derRepresentation: folder.read("leaf"))
        let error = await #expect(throws: ProviderError.self) {
            _ = try await IssuedCertificate(
                [leaf], for: leaf.publicKey, .init(subject: "CN=client"), from: [leaf], at: Date())
        }
        #expect(error?.message.contains(name) == true)
        #expect(error?.message.contains("swift") == false)
    }
}
