import CertificateProviding
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite struct EnrolmentTests {
    private let tokens: EmptyTokens
    private let authority: TestAuthority

    init() throws {
        tokens = try EmptyTokens.shared.get()
        authority = try TestAuthority()
    }

    private func certify(_ key: any IdentityKey, as name: String) throws -> X509Certificate {
        try authority.certify(key.publicKey.derRepresentation, as: name)
    }

    @Test func anIssuedCertificateMakesAnIdentity() async throws {
        let provider = try tokens.provider(.enrolment)
        let key = try await provider.generateKey(.p256, label: "client", NoUserInteraction())
        #expect(try provider.getStoredCertificate() == nil)
        let leaf = try certify(key, as: "enrolled")
        let chain = [leaf, authority.intermediate, authority.root]
        let identity = try await provider.store(certificateChain: chain, for: key, NoUserInteraction())
        #expect(identity.certificate == leaf)
        // The root stays out, and existing certificates are not written again.
        #expect(try tokens.count(.enrolment) == 4)
        _ = try await provider.store(certificateChain: chain, for: key, NoUserInteraction())
        #expect(try tokens.count(.enrolment) == 4)

        let later = try tokens.provider(.enrolment)
        let found = try await later.getCertificate(NoUserInteraction())
        #expect(found.certificateChain == [leaf, authority.intermediate] && found.provenance.alias == "client")
        try await found.verifyPossession()
        let list = await later.listIdentities()
        #expect(list.identities.map(\.certificateChain) == [[leaf, authority.intermediate]])
        #expect(list.identities.map(\.keyURI) == [key.uri] && list.failures.isEmpty)

        // The objects as OpenSC reads them: the leaf under the key's id and label, with its names and number.
        let listing = try tokens.listing(.enrolment)
        let start = try #require(listing.range(of: "label:      client\n  subject:"), "\(listing)")
        #expect(listing[start.upperBound...].contains("CN=enrolled"))
        #expect(listing.lowercased().contains("serial:     \(leaf.serialNumberText)"), "\(listing)")
    }

    @Test("Of several identities on a token, the one whose extended key usage permits the usage is taken")
    func theUsageChooses() async throws {
        let provider = try tokens.provider(.usages)
        var leaves: [IdentityUsage: X509Certificate] = [:]
        for usage in [IdentityUsage.client, .server] {
            let key = try await provider.generateKey(.p256, label: usage.rawValue, NoUserInteraction())
            let leaf = try authority.certify(
                key.publicKey.derRepresentation, as: usage.rawValue, for: usage.purposes)
            _ = try await provider.store(
                certificateChain: [leaf, authority.intermediate], for: key, NoUserInteraction())
            leaves[usage] = leaf
        }
        for (usage, leaf) in leaves {
            let chooser = try tokens.provider(.usages, ["usage": usage.rawValue])
            let identity = try await chooser.getCertificate(NoUserInteraction())
            #expect(identity.certificate == leaf && identity.usage == usage)
            let list = await chooser.listIdentities()
            #expect(list.identities.count == 2 && list.identities.allSatisfy { $0.usage == usage })
            #expect(try list.choice?.get().certificateChain.first == leaf)
        }
        await expect(code: .configurationInvalid) {
            _ = try await tokens.provider(.usages, ["usage": "both"]).getCertificate(NoUserInteraction())
        }
    }

    @Test func anotherKeysCertificateIsRefused() async throws {
        let provider = try tokens.provider(.request)
        let key = try await provider.generateKey(.p256, label: "client", NoUserInteraction())
        let other = try authority.issue("other")
        await expect(code: .keyMismatch) {
            _ = try await provider.store(
                certificateChain: other.certificateChain, for: key, NoUserInteraction())
        }
        #expect(try tokens.count(.request) == 2)
        await expect(code: .notFound) {
            _ = try await provider.store(
                certificateChain: other.certificateChain, for: other.key, NoUserInteraction())
        }
    }

    @Test func aRenewalKeepsTheOldPairUntilItIsDiscarded() async throws {
        let provider = try tokens.provider(.renewal)
        let oldKey = try await provider.generateKey(.p256, label: "client", NoUserInteraction())
        let old = try await provider.store(
            certificateChain: [try certify(oldKey, as: "old"), authority.intermediate], for: oldKey, NoUserInteraction()
        )
        let newKey = try await provider.generateKey(.p384, label: "client", NoUserInteraction())
        #expect(try await tokens.provider(.renewal).getCertificate(NoUserInteraction()).certificate == old.certificate)
        let new = try await provider.store(
            certificateChain: [try certify(newKey, as: "new"), authority.intermediate], for: newKey, NoUserInteraction()
        )
        try await old.verifyPossession()
        try await provider.discard(old.key, NoUserInteraction())
        let found = try await tokens.provider(.renewal).getCertificate(NoUserInteraction())
        #expect(found.certificateChain == new.certificateChain)
        #expect(try tokens.count(.renewal) == 4)
    }

    @Test func aRenewalWithTheSameKeyReplacesOnlyWhenTold() async throws {
        let provider = try tokens.provider(.samekey)
        let key = try await provider.generateKey(.p256, label: "client", NoUserInteraction())
        _ = try await provider.store(
            certificateChain: [try certify(key, as: "old")], for: key, NoUserInteraction())
        let new = try await provider.store(
            certificateChain: [try certify(key, as: "new")], for: key, NoUserInteraction())
        #expect(try tokens.count(.samekey) == 4)
        try await provider.removeReplacedCertificates(of: new, NoUserInteraction())
        #expect(try tokens.count(.samekey) == 3)
        #expect(try await provider.getCertificate(NoUserInteraction()).certificate == new.certificate)
    }
}
