import CertificateProviding
import Foundation
import TestSupport
import Testing
import X509

@Suite struct CertificateChainTests {
    private func certificate(_ subject: String, by issuer: String) throws -> X509Certificate {
        try TestAuthority.certificate(subject: subject, issuer: issuer)
    }

    @Test("A chain is put in order from the leaf to the root")
    func isPutInOrder() throws {
        let chain = [
            try certificate("leaf", by: "a"), try certificate("a", by: "b"), try certificate("b", by: "root"),
            try certificate("root", by: "root"),
        ]
        let decoys = [try certificate("leaf", by: "x"), try certificate("x", by: "root")]
        #expect(CertificateChain.build(from: chain[0], among: (chain + decoys).reversed()) == chain)
        #expect(CertificateChain.build(from: chain[0], among: chain.dropLast()) == Array(chain.dropLast()))
        #expect(CertificateChain.build(from: chain[0], among: []) == [chain[0]])
        #expect(CertificateChain.build(from: chain[3], among: chain) == [chain[3]])
    }

    @Test func aLoopEnds() throws {
        let loop = [try certificate("a", by: "b"), try certificate("b", by: "c"), try certificate("c", by: "a")]
        #expect(CertificateChain.build(from: loop[0], among: loop) == loop)
    }

    @Test func aLongChainIsCut() throws {
        let chain = try (0..<40).map { try certificate("\($0)", by: "\($0 + 1)") }
        #expect(CertificateChain.build(from: chain[0], among: chain.shuffled()) == Array(chain.prefix(16)))
    }

    @Test("Of several issuers with the same name, the one that expires last is chosen")
    func ofTwoIssuersTheLaterOne() throws {
        let leaf = try certificate("leaf", by: "root")
        let roots = try [100, 300, 200].map {
            try TestAuthority.certificate(
                subject: "root", issuer: "root", notAfter: Date(timeIntervalSinceNow: $0 * 86400))
        }
        #expect(CertificateChain.build(from: leaf, among: roots) == [leaf, roots[1]])
    }

    @Test("A leaf with the name of its CA, and a CA's new key signed by the old one, have their issuers")
    func selfIssued() throws {
        let authority = try TestAuthority()
        let leaf = try authority.issue("Test Intermediate").certificate
        #expect(leaf.isSelfIssued)
        let chain = [leaf, authority.intermediate, authority.root]
        #expect(CertificateChain.build(from: leaf, among: chain.reversed()) == chain)
        #expect(CertificateChain.withoutRoot(chain) == chain.dropLast())
        let itself = try TestAuthority.leaf("itself")
        #expect(CertificateChain.build(from: itself, among: [itself, try TestAuthority.leaf("itself")]) == [itself])
    }

    @Test("A cross-signed certificate comes before its root, unless it ends before the leaf", arguments: [2.0, 50])
    func crossSigned(days: TimeInterval) throws {
        func certificate(_ subject: String, by issuer: String, _ days: TimeInterval) throws -> X509Certificate {
            try TestAuthority.certificate(
                subject: subject, issuer: issuer, notAfter: Date(timeIntervalSinceNow: days * 86400))
        }
        let (leaf, root) = (try certificate("leaf", by: "new", 10), try certificate("new", by: "new", 900))
        let (cross, old) = (try certificate("new", by: "old", days), try certificate("old", by: "old", 900))
        let expected = days < 10 ? [leaf, root] : [leaf, cross, old]
        #expect(CertificateChain.build(from: leaf, among: [root, old, cross]) == expected)
        #expect(CertificateChain.build(from: leaf, among: [cross, old, root]) == expected)
    }

    @Test(
        "Of several issuers with the same name, the one that has signed is chosen, also where another one expires later"
    )
    func ofTwoIssuersTheOneThatSigned() throws {
        let old = try TestAuthority(intermediateUntil: Date(timeIntervalSinceNow: 864_000))
        let new = try TestAuthority()
        let issuers = [new.root, new.intermediate, old.intermediate, old.root]
        #expect(old.intermediate.subjectDER == new.intermediate.subjectDER)
        for authority in [old, new] {
            let leaf = try authority.issue("leaf").certificate
            #expect(
                CertificateChain.build(from: leaf, among: issuers) == [leaf, authority.intermediate, authority.root])
        }
    }

    @Test("The earliest end in a chain is the end of the identity")
    func endsWithItsFirstCertificate() throws {
        let end = Date(timeIntervalSinceNow: 3600).wholeSeconds
        let identity = try TestAuthority(intermediateUntil: end).issue("host")
        let listed = ListedIdentity(identity, isStored: true)
        #expect(identity.certificate.notValidAfter > end)
        #expect(identity.expiry == end && listed.expiry == end)
        #expect(identity.status(at: end) == .valid && listed.status(at: end) == .valid)
        #expect(identity.obstacle(at: end) == nil)
        #expect(identity.status(at: end + 1) == .expired && listed.status(at: end + 1) == .expired)
        #expect(
            identity.obstacle(at: end + 1)
                == "'CN=Test Intermediate,O=certprov tests' in its chain expired on \(end.formatted(.iso8601))")
        let start = identity.certificate.notValidBefore
        #expect(identity.status(at: start - 1) == .notYetValid)
        #expect(identity.obstacle(at: start - 300) == nil, "the CA's clock may be ahead")
        #expect(identity.obstacle(at: start - 301) == "it is not valid before \(start.formatted(.iso8601))")
        #expect(
            CertificateChain.expiry(of: []) == .distantPast && CertificateChain.status(of: [], at: start) == .expired)
    }

    /// The extended key usages of one certificate, and the side of TLS that it refuses, by usage.
    private static let purposes: [([ExtendedKeyUsage.Usage], [IdentityUsage: String])] = [
        ([], [:]), ([.serverAuth, .clientAuth], [:]),
        ([.clientAuth], [.server: "server", .both: "server"]), ([.serverAuth], [.client: "client", .both: "client"]),
        ([.emailProtection], [.client: "client", .server: "server", .both: "client"]),
        // As OpenSSL has it.
        ([.any], [.client: "client", .server: "server", .both: "client"]), ([.any, .clientAuth, .serverAuth], [:]),
    ]

    @Test(
        "A chain is of no use for a side of TLS that its intermediate's extended key usage lacks", arguments: purposes)
    func theIssuerRestrictsItsLeaves(purposes: [ExtendedKeyUsage.Usage], refused: [IdentityUsage: String]) throws {
        let authority = try TestAuthority(for: purposes.isEmpty ? nil : ExtendedKeyUsage(purposes))
        for usage in IdentityUsage.sidesOfTLS {
            let identity = try authority.issue("host", usage: usage)
            #expect(identity.status(at: Date()) == .valid)
            let expected = refused[usage].map {
                "'CN=Test Intermediate,O=certprov tests' in its chain does not permit TLS \($0) authentication, by its "
                    + "extended key usage"
            }
            #expect(identity.obstacle(at: Date()) == expected)
            #expect(ListedIdentity(identity, isStored: true).obstacle(at: Date()) == expected)
        }
    }

    @Test("A leaf is of no use for a side of TLS that its extended key usage lacks", arguments: purposes.dropFirst())
    func theLeafNamesItsSides(purposes: [ExtendedKeyUsage.Usage], refused: [IdentityUsage: String]) throws {
        let authority = try TestAuthority()
        for usage in IdentityUsage.sidesOfTLS {
            let identity = try authority.issue("host", for: purposes, usage: usage)
            #expect(
                identity.obstacle(at: Date())
                    == refused[usage].map {
                        "it does not permit TLS \($0) authentication, by its extended key usage, which usage=\(usage) needs"
                            + (usage == .client && refused[.server] == nil
                                ? " (it is for servers: set usage = server)" : "")
                    })
            #expect(identity.certificate.permits(usage) == (refused[usage] == nil))
            #expect(identity.certificate.declares(usage) == (refused[usage] == nil))
        }
    }

    @Test("For signatures alone, no key purpose is needed, and one of TLS is not named")
    func signatures() throws {
        let authority = try TestAuthority()
        for (purposes, isForTLS) in [
            ([ExtendedKeyUsage.Usage.emailProtection], false), ([.emailProtection, .clientAuth], true), ([.any], true),
        ] {
            let identity = try authority.issue("person", for: purposes, usage: .signature)
            #expect(identity.obstacle(at: Date()) == nil)
            #expect(identity.certificate.permits(.signature) && identity.certificate.declares(.signature) == !isForTLS)
            #expect(identity.certificate.isForTLS == isForTLS)
        }
    }

    @Test("Chains are refused for a usage where OpenSSL refuses them", arguments: purposes)
    func openSSLAgrees(purposes: [ExtendedKeyUsage.Usage], refused: [IdentityUsage: String]) throws {
        let authority = try TestAuthority(for: purposes.isEmpty ? nil : ExtendedKeyUsage(purposes))
        let folder = try TemporaryDirectory()
        let chain = try authority.issue("host").certificateChain
        for (name, certificate) in [("root", authority.root), ("ica", chain[1]), ("leaf", chain[0])] {
            try folder.write(certificate.pemRepresentation.utf8, to: name)
        }
        for (usage, purpose) in [(IdentityUsage.client, "sslclient"), (.server, "sslserver")] {
            let isAccepted =
                (try? Subprocess.openssl(
                    "verify", "-purpose", purpose, "-CAfile", "root", "-untrusted", "ica", "leaf", in: folder.path))
                != nil
            #expect(isAccepted == (CertificateChain.obstacle(in: chain, for: usage, at: Date()) == nil))
        }
    }

    @Test("The root is left out of identities and listings, and a self-signed leaf is not")
    func theRootIsLeftOut() throws {
        let authority = try TestAuthority()
        let identity = try authority.issue("host")
        let whole = identity.certificateChain + [authority.root]
        #expect(CertificateChain.withoutRoot(whole) == identity.certificateChain)
        #expect(CertificateChain.withoutRoot([authority.root]) == [authority.root])
        let again = try Identity(certificateChain: whole, key: identity.key, provenance: identity.provenance)
        #expect(again.certificateChain == identity.certificateChain)
        let listed = ListedIdentity(
            provider: identity.provenance.provider, alias: nil, isStored: false, certificateChain: whole,
            keyLocation: .file,
            isKeyExportable: true)
        #expect(listed.certificateChain == identity.certificateChain)
        #expect(ListedIdentity(again, isStored: true).certificateChain.count == 2)
    }

    @Test("A chain that peers refuse does not replace one that they accept")
    func onlyTheUsableReplacesTheUsable() throws {
        let now = Date()
        let good = try TestAuthority().issue("good")
        let bad: [(Identity, ProviderError.Code)] = [
            (try TestAuthority(intermediateUntil: now - 60).issue("host"), .pending),
            (try TestAuthority().issue("host", notBefore: now - 7200, notAfter: now - 3600), .pending),
            (try TestAuthority().issue("host", notBefore: now + 3600), .pending),
            (try TestAuthority(for: ExtendedKeyUsage([.serverAuth])).issue("host"), .unsupportedAlgorithm),
        ]
        for (identity, code) in bad {
            let obstacle = try #require(identity.obstacle(at: now))
            let error = failure { try identity.requireUsable(toReplace: good, at: now) }
            #expect(error?.code == code && error?.message.contains(obstacle) == true, "\(error as Any)")
            #expect(error?.message.contains("stays in use") == true)
            try identity.requireUsable(toReplace: identity, at: now)
            try good.requireUsable(toReplace: identity, at: now)
        }
        try TestAuthority().issue("better").requireUsable(toReplace: good, at: now)
    }

    /// The leaf of an identity, as a file has it that was written without its chain.
    private func alone(_ identity: Identity, trust: [X509Certificate] = [], with root: X509Certificate? = nil) throws
        -> Identity
    {
        try Identity(
            certificateChain: [identity.certificate] + [root].compactMap(\.self), key: identity.key,
            trust: TrustBundle(trust), usage: identity.usage, provenance: identity.provenance)
    }

    @Test("A leaf alone does not replace a chain that has its issuer, while that is valid; a leaf of the root does")
    func aLeafAloneDoesNotReplaceItsChain() throws {
        let (authority, now) = (try TestAuthority(), Date())
        let good = try authority.issue("good")
        let leaf = try alone(authority.issue("leaf"))
        let error = failure { try leaf.requireUsable(toReplace: good, at: now) }
        #expect(
            error?.code == .malformedData
                && error?.message.contains("without its issuer '\(authority.intermediate.subject)'") == true)
        // A later CA may have the same name, and another key.
        let later = try alone(TestAuthority().issue("later"))
        #expect(throws: ProviderError.self) { try later.requireUsable(toReplace: good, at: now) }
        let over = try authority.issue("over", notBefore: now - 7200, notAfter: now - 3600)
        try leaf.requireUsable(toReplace: over, at: now)
        try leaf.requireUsable(toReplace: leaf, at: now)
        try good.requireUsable(toReplace: leaf, at: now)
        try authority.issue("by the root", isByRoot: true).requireUsable(toReplace: good, at: now)
        // The end of a chain that is of no use to most peers, such as a root that an older one has certified.
        try authority.issue("short").requireUsable(toReplace: authority.crossCertified(good, until: now + 60), at: now)
    }

    @Test("The remark on a leaf alone names its issuer, where peers may lack it")
    func aLeafAloneIsRemarkedOn() throws {
        let authority = try TestAuthority()
        let chain = try authority.issue("good").certificateChain
        let (root, intermediate) = (authority.root, authority.intermediate)
        let (client, server) = (try authority.issue("leaf"), try authority.issue("leaf", usage: .server))
        let cases: [(Identity, after: [X509Certificate], String?)] = [
            (try alone(client), [], nil), (try alone(server), [], intermediate.subject),
            (try alone(client), chain, intermediate.subject),
            (try alone(client), try TestAuthority("Other").issue("other").certificateChain, intermediate.subject),
            (try authority.issue("by the root", usage: .server, isByRoot: true), chain, nil),
            (try authority.issue("by the root", usage: .server, isByRoot: true), [], root.subject),
            (try alone(authority.issue("by the root", usage: .server, isByRoot: true), with: root), [], nil),
            (try alone(authority.issue("by the root", usage: .server, isByRoot: true), trust: [root]), [], nil),
            (try alone(server, trust: [intermediate]), [], nil),
            (try alone(client, trust: [root, intermediate]), [], intermediate.subject),
            (client, [], nil), (client, chain, nil), (server, try alone(client).certificateChain, nil),
        ]
        for (index, (identity, current, name)) in cases.enumerated() {
            let remark = identity.remarkOnIssuer(after: current)
            #expect((remark != nil) == (name != nil), "\(index): \(remark ?? "")")
            if let name { #expect(remark?.contains("without its issuer '\(name)'") == true, "\(index)") }
        }
        let longer = try authority.crossCertified(client, until: Date() + 3600)
        #expect(client.remarkOnIssuer(after: longer.certificateChain)?.contains("'\(root.subject)'") == true)
    }

    @Test("Of two chains with an obstacle, one whose leaf is not valid does not replace one whose leaf is")
    func theLeavesDecideBetweenTwoObstacles() throws {
        let (authority, now) = (try TestAuthority(), Date())
        let current = try authority.crossCertified(authority.issue("host"), until: now - 60)
        let next = try authority.crossCertified(authority.issue("host"), until: now - 60)
        let over = try authority.issue("host", notBefore: now - 7200, notAfter: now - 3600)
        let future = try authority.issue("host", notBefore: now + 3600)
        try next.requireUsable(toReplace: current, at: now)
        for (new, old) in [(over, current), (future, current)] {
            #expect(failure { try new.requireUsable(toReplace: old, at: now) }?.code == .pending)
        }
        try over.requireUsable(toReplace: future, at: now)
        try future.requireUsable(toReplace: over, at: now)
        try next.requireUsable(toReplace: over, at: now)
    }

    @Test("The same certificate is no successor, unless its chain ends later")
    func aSuccessorHasANewCertificateOrALaterEnd() throws {
        let (authority, now) = (try TestAuthority(), Date())
        let identity = try authority.issue("host")
        let longer = try authority.crossCertified(identity, until: now - 60)
        let same: [(Identity, Identity, ProviderError.Code)] = [
            (identity, identity, .pending), (longer, identity, .expired), (longer, longer, .expired),
        ]
        for (new, old, code) in same {
            #expect(failure { try new.requireSuccession(to: old, at: now) }?.code == code)
        }
        try identity.requireSuccession(to: longer, at: now)
        try authority.issue("host").requireSuccession(to: identity, at: now)
    }
}

extension Date {
    /// As certificates have it.
    fileprivate var wholeSeconds: Date { Date(timeIntervalSince1970: timeIntervalSince1970.rounded()) }
}
