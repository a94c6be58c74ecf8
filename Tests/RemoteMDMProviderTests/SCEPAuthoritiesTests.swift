import CertificateProviding
import Enrolment
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

@testable import RemoteMDMProvider

/// Which of a server's certificates are trusted, and for what.
@Suite struct SCEPAuthoritiesTests {
    private static let signing = KeyUsage(digitalSignature: true)
    private static let encrypting = KeyUsage(keyEncipherment: true)

    private func registration(
        _ name: String, by issuer: CertifiedKey, usage: KeyUsage?, purposes: [ExtendedKeyUsage.Usage] = [],
        key: SoftwareKey? = nil
    ) throws -> CertifiedKey {
        try CertifiedKey(
            name, key: key ?? TestKeys.rsa.get(), issuer: issuer, isAuthority: false, usage: usage, purposes: purposes)
    }

    private func authorities(
        _ certificates: [CertifiedKey], pinning pinned: CertifiedKey? = nil, anchors: [CertifiedKey] = []
    ) async throws -> SCEPAuthorities {
        let configuration = try SCEPConfiguration(
            target: "/scep", fingerprint: pinned?.certificate.sha256Fingerprint,
            trustAnchors: anchors.map(\.certificate))
        return try await SCEPAuthorities(certificates.map(\.certificate), configuration: configuration, now: Date())
    }

    @Test func keyUsageTellsSignerFromRecipient() async throws {
        let authority = try CertifiedKey.authority.get()
        let signer = try registration("signer", by: authority, usage: Self.signing)
        let recipient = try registration("recipient", by: authority, usage: Self.encrypting)
        for order in [[signer, recipient, authority], [authority, recipient, signer]] {
            let found = try await authorities(order, pinning: authority)
            #expect(found.recipient == recipient.certificate)
            #expect(Set(found.signers) == [signer.certificate, authority.certificate])
            #expect(found.issuerDER == authority.certificate.subjectDER)
        }
    }

    @Test("One registration authority may both sign and decrypt")
    func oneRegistrationAuthorityForBoth() async throws {
        let authority = try CertifiedKey.authority.get()
        let both = try registration(
            "both", by: authority, usage: KeyUsage(digitalSignature: true, keyEncipherment: true))
        let found = try await authorities([both, authority], pinning: authority)
        #expect(found.recipient == both.certificate)
        #expect(found.signers.contains(both.certificate))
    }

    @Test func messagesAreEncryptedForTheRegistrationAuthority() async throws {
        let authority = try CertifiedKey.authority.get()
        let reader = try registration(
            "reader", by: authority, usage: KeyUsage(digitalSignature: true, keyEncipherment: true),
            key: TestKeys.otherRSA.get())
        let responder = try SCEPResponder(
            .init(signer: reader, certificates: [reader.certificate, authority.certificate]), reader: reader)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: authority.certificate), transport: responder.transport)
        _ = try await client.enrol(.testing(key: TestKeys.rsa.get())).certificates()
    }

    @Test("An RSA intermediate below an EC root is chosen as the recipient")
    func anRSAIntermediateBelowAnECRoot() async throws {
        let root = try CertifiedKey("EC Root", key: TestKeys.p256.get())
        let intermediate = try CertifiedKey("RSA CA", key: TestKeys.rsa.get(), issuer: root)
        for order in [[root, intermediate], [intermediate, root]] {
            #expect(try await authorities(order, pinning: root).recipient == intermediate.certificate)
        }
        #expect(try await authorities([intermediate], anchors: [root]).recipient == intermediate.certificate)
        let pinned = try await authorities([intermediate, root], pinning: intermediate)
        #expect(pinned.certificates == [intermediate.certificate])
        let both = try await authorities([intermediate, root], pinning: intermediate, anchors: [root])
        #expect(both.recipient == intermediate.certificate)
        let stranger = try CertifiedKey.authority.get()
        await #expect(throws: ProviderError.self) {
            try await authorities([intermediate, root], pinning: intermediate, anchors: [stranger])
        }
    }

    @Test func theIssuingAuthorityWithAnRSAKeyIsTakenWhereverItIs() async throws {
        let root = try CertifiedKey.authority.get()
        let onCurve = try CertifiedKey("EC Issuing", key: TestKeys.p256.get(), issuer: root)
        let withRSA = try CertifiedKey("RSA Issuing", key: TestKeys.rsa.get(), issuer: root)
        for order in [[onCurve, withRSA, root], [withRSA, onCurve, root], [root, onCurve, withRSA]] {
            let found = try await authorities(order, pinning: root)
            #expect(found.recipient == withRSA.certificate)
            #expect(found.issuerDER == withRSA.certificate.subjectDER)
        }
    }

    @Test func anECAuthorityAloneIsRefused() async throws {
        let root = try CertifiedKey("EC Root", key: TestKeys.p256.get())
        let error = await #expect(throws: ProviderError.self) {
            try await authorities([root], pinning: root)
        }
        #expect(error?.code == .unsupportedAlgorithm)
    }

    /// NDES says that its certificates are for this, others by RFC 6402.
    @Test(
        "A certificate with a registration authority's extended key usage is taken as one",
        arguments: [[1, 3, 6, 1, 4, 1, 311, 20, 2, 1], [1, 3, 6, 1, 5, 5, 7, 3, 28] as ASN1ObjectIdentifier])
    func aRegistrationAuthorityMaySayThatItIsOne(purpose: ASN1ObjectIdentifier) async throws {
        let authority = try CertifiedKey.authority.get()
        let agent = try registration(
            "agent", by: authority, usage: nil, purposes: [ExtendedKeyUsage.Usage(oid: purpose)])
        let found = try await authorities([agent, authority], pinning: authority)
        #expect(found.recipient == agent.certificate && found.signers.contains(agent.certificate))
    }

    /// A CA that goes over to another key: old and new root, and the new key certified by the old one.
    @Test func twoAuthoritiesMayHaveOneName() async throws {
        let hour = Date(timeIntervalSinceNow: -3600)
        let old = try CertifiedKey("CA", key: TestKeys.rsa.get(), notBefore: hour)
        let new = try CertifiedKey("CA", key: TestKeys.otherRSA.get(), notBefore: hour + 1800)
        let link = try CertifiedKey("CA", key: TestKeys.otherRSA.get(), issuer: old, notBefore: hour + 900)
        for bag in [[old, new, link], [new, link, old], [link, old]] {
            let found = try await authorities(bag, anchors: [old, new])
            #expect(found.recipient == (bag.contains { $0.certificate == new.certificate } ? new : link).certificate)
            #expect(found.issuerDER == old.certificate.subjectDER)
        }
    }

    @Test(arguments: [
        [ExtendedKeyUsage.Usage.clientAuth], [.emailProtection, .clientAuth], [.serverAuth], [.any],
        // The defaults of NDES for devices, and uses of persons: IPsec, the encrypting file system.
        [.init(oid: [1, 3, 6, 1, 5, 5, 8, 2, 2])], [.init(oid: [1, 3, 6, 1, 4, 1, 311, 10, 3, 4])], [.emailProtection],
    ])
    func aClientOfTheCAIsNoRegistrationAuthority(purposes: [ExtendedKeyUsage.Usage]) async throws {
        let authority = try CertifiedKey.authority.get()
        let client = try registration(
            "client", by: authority, usage: KeyUsage(digitalSignature: true, keyEncipherment: true),
            purposes: purposes)
        let found = try await authorities([client, authority], pinning: authority)
        #expect(found.certificates == [authority.certificate])
        #expect(found.recipient == authority.certificate)
        // Unless it is the one that the configuration means.
        let pinned = try await authorities([client, authority], pinning: client)
        #expect(pinned.recipient == client.certificate)
    }

    @Test func strangersAreLeftOut() async throws {
        let authority = try CertifiedKey.authority.get()
        // Of the CA's name.
        let impostor = try CertifiedKey.impostor.get()
        let usage = KeyUsage(digitalSignature: true, keyEncipherment: true)
        let stranger = try registration("stranger", by: impostor, usage: usage)
        let expired = try CertifiedKey(
            "expired", key: TestKeys.rsa.get(), issuer: authority, isAuthority: false, usage: usage,
            notAfter: Date(timeIntervalSinceNow: -60))
        let found = try await authorities([stranger, impostor, expired, authority], pinning: authority)
        #expect(found.certificates == [authority.certificate])
        await #expect(throws: ProviderError.self) {
            try await authorities([stranger, impostor], anchors: [authority])
        }
    }

    /// Each signs each: so many paths that no search begins.
    @Test("Too many cross-certified CA certificates are refused", .timeLimit(.minutes(20)))
    func authoritiesThatCertifyEachOtherAreTooMany() async throws {
        let keys = try (0..<9).map { _ in try TestKeys.makeP256() }
        let authorities = try keys.map { try CertifiedKey("CA", key: $0) }
        let all = try authorities.flatMap { issuer in try keys.map { try CertifiedKey("CA", key: $0, issuer: issuer) } }
        let error = await #expect(throws: ProviderError.self) {
            try await self.authorities(all, anchors: [CertifiedKey.authority.get()])
        }
        #expect(error?.code == .protocolError)
        await #expect(throws: ProviderError.self) {
            try await self.authorities(
                Array(all.prefix(4) + all[9..<13] + all[18..<22] + all[27..<31]),
                anchors: [CertifiedKey.authority.get()])
        }
    }

    @Test("The next CA certificate must be signed by the current CA")
    func theNextAuthorityIsSignedByThisOne() async throws {
        let authority = try CertifiedKey.authority.get()
        let responder = try SCEPResponder()
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: authority.certificate), transport: responder.transport)
        #expect(try await client.nextAuthorities() == [CertifiedKey.impostor.get().certificate])

        for (behaviour, code) in [
            (
                SCEPResponder.Behaviour(signer: try CertifiedKey.impostor.get()),
                ProviderError.Code.serverNotTrusted
            ),
            (.init(digest: "SHA1"), .unsupportedAlgorithm), (.init(capabilities: "SCEPStandard"), .notFound),
            (.init(statuses: ["GetNextCACert": 500]), .unavailable),
        ] {
            let responder = try SCEPResponder(behaviour)
            let client = SCEPClient.testing(
                try SCEPConfiguration(trusting: authority.certificate), transport: responder.transport)
            let error = await #expect(throws: ProviderError.self) { try await client.nextAuthorities() }
            #expect(error?.code == code)
        }
    }

    /// An authority that is trusted because of an anchor makes no other one trusted; and anchors that are configured beside a
    /// fingerprint still hold.
    @Test func theNextAuthorityDoesNotWidenWhatIsConfigured() async throws {
        let root = try CertifiedKey("Root", key: TestKeys.p256.get())
        let issuing = try CertifiedKey("Issuing", key: TestKeys.rsa.get(), issuer: root)
        let next = try CertifiedKey("Next", key: TestKeys.otherRSA.get(), issuer: root)
        let alone = try CertifiedKey("Alone", key: TestKeys.otherRSA.get())
        func announced(
            _ next: CertifiedKey, by signer: CertifiedKey, pinning pinned: CertifiedKey? = nil,
            anchors: [CertifiedKey] = [], known: [CertifiedKey] = []
        ) async throws -> [X509Certificate]? {
            let responder = try SCEPResponder(
                .init(
                    nextSigner: signer, certificates: [issuing.certificate, root.certificate], next: next.certificate),
                authority: issuing)
            let configuration = try SCEPConfiguration(
                target: "/scep", fingerprint: pinned?.certificate.sha256Fingerprint,
                trustAnchors: anchors.map(\.certificate), known: known.map(\.certificate))
            let client = SCEPClient.testing(configuration, transport: responder.transport)
            do { return try await client.nextAuthorities() } catch {
                #expect(error.code == .serverNotTrusted)
                return nil
            }
        }
        #expect(try await announced(alone, by: issuing, pinning: issuing) == [alone.certificate])
        #expect(try await announced(alone, by: issuing, anchors: [issuing]) == [alone.certificate])
        #expect(try await announced(alone, by: issuing, pinning: issuing, anchors: [issuing]) == [alone.certificate])
        #expect(try await announced(alone, by: issuing, anchors: [root]) == nil)
        #expect(try await announced(alone, by: issuing, pinning: root) == nil)
        #expect(try await announced(alone, by: issuing, pinning: issuing, anchors: [root]) == nil)
        #expect(try await announced(alone, by: issuing, pinning: issuing, anchors: [root], known: [issuing]) == nil)
        #expect(try await announced(next, by: issuing, pinning: issuing, anchors: [root]) == [next.certificate])
        #expect(try await announced(alone, by: issuing, anchors: [root], known: [issuing]) == [alone.certificate])
    }

    @Test func fingerprintsAreReadAsTheyAreWritten() throws {
        let digest = [UInt8](0..<32)
        let hex = digest.hexEncoded
        let withColons = digest.map { [$0].hexEncoded.uppercased() }.joined(separator: ":")
        for text in [hex, hex.uppercased(), withColons, " \(withColons)\n"] {
            #expect(try CAFingerprint.parse(text) == digest)
        }
        // SHA-1, MD5, an odd digit, none, something else.
        for text in [
            "\(hex.prefix(40))", "\(hex.prefix(32))", "\(hex)0", "", "0x\(hex.prefix(62))",
            "\u{ff10}\(hex.dropFirst())",
        ] {
            let error = #expect(throws: ProviderError.self) {
                try CAFingerprint.parse(text)
            }
            #expect(error?.code == .configurationInvalid)
        }
        let error = #expect(throws: ProviderError.self) { try SCEPConfiguration(target: "/") }
        #expect(error?.code == .configurationInvalid)
    }
}
