import CertificateProviding
import Crypto
import CryptoExtras
import Foundation
import SwiftASN1
import TestSupport
import Testing
import X509

@Suite struct CertificateValidationTests {
    private let root = Result { try TestParty("root") }
    private let issuing = Result { try TestParty("issuing") }
    private let client = Result { try TestParty("client") }

    /// Each certifies each: more paths than any search can try.
    private static func mesh(_ count: Int) throws -> (parties: [TestParty], certificates: [X509Certificate]) {
        let parties = try (0..<count).map { try TestParty("\($0)", key: .init(P521.Signing.PrivateKey())) }
        let certificates = try parties.indices.flatMap { one in
            try parties.indices.filter { $0 != one }.map { try parties[$0].certify(parties[one]) }
        }
        return (parties, certificates)
    }

    @Test(.timeLimit(.minutes(20))) func authoritiesThatCertifyEachOtherEndTheSearch() async throws {
        let (parties, certificates) = try Self.mesh(8)
        let leaf = try parties[0].certify(client.get(), isAuthority: false)
        let anchor = try root.get().certify()
        let validation = try await CertificateChain.validation(
            of: leaf, among: certificates, trusting: [anchor], at: Date())
        #expect(validation.path == nil)
        #expect(validation.obstacle?.contains("search limit") == true)
    }

    /// They have other names, and are not looked at.
    @Test("Unrelated certificates do not prevent the validation of a chain")
    func aBagOfOthersIsNoObstacle() async throws {
        let (_, strangers) = try Self.mesh(8)
        let authority = try root.get().certify()
        let chain = [
            try issuing.get().certify(client.get(), isAuthority: false), try root.get().certify(issuing.get()),
            authority,
        ]
        let path = try await CertificateChain.validated(
            from: chain[0], among: strangers + chain.dropFirst() + strangers, trusting: [authority], at: Date())
        #expect(path == chain)
    }

    /// Not by the clock of this host.
    @Test("A chain is validated at the time that is given", arguments: [(0.0, true), (7200, false), (-172_800, false)])
    func theTimeIsTheCallers(offset: Double, isValid: Bool) async throws {
        let authority = try root.get().certify()
        let leaf = try root.get().certify(client.get(), isAuthority: false, lifetime: 3600)
        let path = try await CertificateChain.validated(
            from: leaf, among: [], trusting: [authority], at: Date().addingTimeInterval(offset))
        #expect((path != nil) == isValid)
    }

    @Test func theIssuerIsTheOneThatHasSigned() async throws {
        let authority = try root.get().certify()
        let right = try root.get().certify(issuing.get(), lifetime: 3600)
        let namesake = try root.get().certify(TestParty("issuing"))
        let leaf = try issuing.get().certify(client.get(), isAuthority: false)
        let path = try await CertificateChain.validated(
            from: leaf, among: [namesake, right], trusting: [authority], at: Date())
        #expect(path == [leaf, right, authority])
    }

    @Test("Of several certificates for the issuer's key, the one that expires last is chosen")
    func ofTwoForTheSameKeyTheLaterOne() async throws {
        let authority = try root.get().certify()
        let issuers = try [3600.0, 9000, 7200].map { try root.get().certify(issuing.get(), lifetime: $0) }
        let leaf = try issuing.get().certify(client.get(), isAuthority: false)
        let path = try await CertificateChain.validated(from: leaf, among: issuers, trusting: [authority], at: Date())
        #expect(path == [leaf, issuers[1], authority])
    }

    @Test func aCancelledValidationSaysSo() async throws {
        let authority = try root.get().certify()
        let leaf = try root.get().certify(client.get(), isAuthority: false)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await CertificateChain.validated(from: leaf, among: [], trusting: [authority], at: Date())
        }
        #expect(await failure { try await task.value }?.code == .userCancelled)
    }

    // MARK: - Who may issue certificates

    private func validation(
        _ chain: [X509Certificate], for usage: IdentityUsage? = .client
    ) async throws -> CertificateChain.Validation {
        try await CertificateChain.validation(
            of: chain[0], among: chain, underAnchors: chain.last.map { IssuerIndex([$0]) }, for: usage, at: Date())
    }

    /// `openssl x509 -req` makes certificates of version 1 by default.
    @Test("The holder of a certificate of version 1 cannot issue certificates", arguments: [nil, IdentityUsage.client])
    func aCertificateOfVersion1IsNoCA(usage: IdentityUsage?) async throws {
        let anchor = try root.get().certify()
        let held = try root.get().certify(issuing.get(), isAuthority: false, version: .v1)
        #expect(try await validation([held, anchor], for: usage).path != nil)
        let forged = try issuing.get().certify(client.get(), isAuthority: false)
        let result = try await validation([forged, held, anchor], for: usage)
        #expect(result.path == nil && result.obstacle?.contains("is not a CA certificate") == true)
    }

    @Test("A root of version 1 may be a trust anchor")
    func aRootOfVersion1() async throws {
        let anchor = try root.get().certify(isAuthority: false, version: .v1)
        #expect(try await validation([root.get().certify(client.get(), isAuthority: false), anchor]).path?.count == 2)
        // A certificate of version 1 that it has issued does not issue others, not even as an anchor.
        let other = try root.get().certify(issuing.get(), isAuthority: false, version: .v1)
        let leaf = try issuing.get().certify(client.get(), isAuthority: false)
        #expect(try await validation([leaf, other]).path == nil)
    }

    @Test("A CA whose key usage does not permit to sign certificates cannot issue any", arguments: [true, false])
    func keyUsageOfCAs(isAnchor: Bool) async throws {
        let usage = try Certificate.Extension(KeyUsage(digitalSignature: true, cRLSign: true), critical: true)
        let authority = try root.get().certify(issuing.get(), [usage])
        let leaf = try issuing.get().certify(client.get(), isAuthority: false)
        let result = try await validation([leaf, authority] + (isAnchor ? [] : [try root.get().certify()]))
        #expect(result.path == nil)
        #expect(result.obstacle?.contains("must not issue certificates, by its key usage") == true)
        let able = try Certificate.Extension(KeyUsage(keyCertSign: true), critical: true)
        #expect(
            try await validation([leaf, root.get().certify(issuing.get(), [able]), root.get().certify()]).path != nil)
    }

    @Test("A TLS peer's chain is not signed with SHA-1, but for the trust anchor")
    func signaturesWithSHA1() async throws {
        let old = try TestParty("root", key: .init(_RSA.Signing.PrivateKey(keySize: .bits2048)))
        let anchor = try old.certify(signature: .sha1WithRSAEncryption)
        #expect(try await validation([old.certify(client.get(), isAuthority: false), anchor]).path != nil)
        let forgeable = try old.certify(client.get(), isAuthority: false, signature: .sha1WithRSAEncryption)
        let result = try await validation([forgeable, anchor])
        #expect(result.path == nil && result.obstacle?.contains("signed with SHA-1") == true)
        #expect(try await validation([forgeable, anchor], for: nil).path != nil)
    }

    // MARK: - Name constraints

    private func constrained(
        _ constraints: NameConstraints, _ names: [GeneralName]
    ) async throws -> CertificateChain.Validation {
        let authority = try root.get().certify(issuing.get(), [Certificate.Extension(constraints, critical: true)])
        let leaf = try issuing.get().certify(
            client.get(), isAuthority: false, [Certificate.Extension(SubjectAlternativeNames(names), critical: false)])
        return try await validation([leaf, authority, root.get().certify()])
    }

    @Test("A CA with name constraints has issued what they permit")
    func nameConstraints() async throws {
        let name = GeneralName.dnsName("a.example")
        #expect(try await constrained(.init(permittedDNSDomains: ["example"]), [name]).path != nil)
        #expect(try await constrained(.init(permittedDNSDomains: ["example.org"]), [name]).path == nil)
        #expect(try await constrained(.init(excludedDNSDomains: ["a.example"]), [name]).path == nil)
        #expect(
            try await constrained(
                .init(permittedURIDomains: ["a.example"]), [.uniformResourceIdentifier("spiffe://a.example/x")]
            ).path != nil)
        #expect(
            try await constrained(
                .init(permittedURIDomains: ["b.example"]), [.uniformResourceIdentifier("spiffe://a.example/x")]
            ).path == nil)
    }

    @Test("More names and name constraints than can be compared are refused at once", .timeLimit(.minutes(20)))
    func comparisonsAreBounded() async throws {
        func result(_ count: Int) async throws -> CertificateChain.Validation {
            try await constrained(
                .init(excludedDNSDomains: (0..<count).map { "x\($0).example" }),
                (0..<count).map { .dnsName("n\($0).example") })
        }
        #expect(try await result(40).path != nil)
        let tooMany = try await result(2000)
        #expect(tooMany.path == nil && tooMany.obstacle?.contains("more than can be compared") == true)
    }

    @Test("The validation reports why a chain is not valid")
    func whatStandsInTheWayIsSaid() async throws {
        let anchor = try root.get().certify()
        let unknown = Certificate.Extension(oid: [1, 2, 3, 4], critical: true, value: [5, 0])
        func obstacle(_ leaf: X509Certificate, _ issuer: X509Certificate) async throws -> String? {
            let validation = try await CertificateChain.validation(
                of: leaf, among: [issuer], trusting: [anchor], at: Date())
            #expect(validation.path == nil)
            return validation.obstacle
        }
        let leaf = try issuing.get().certify(client.get(), isAuthority: false)
        let good = try root.get().certify(issuing.get())
        let odd = try issuing.get().certify(client.get(), isAuthority: false, [unknown])
        #expect(try await obstacle(odd, good)?.contains("critical extension 1.2.3.4") == true)
        let expired = try root.get().certify(issuing.get(), lifetime: -60)
        #expect(try await obstacle(leaf, expired)?.contains("expired on") == true)
        let subject = try root.get().certify(issuing.get(), isAuthority: false)
        #expect(try await obstacle(leaf, subject)?.contains("is not a CA certificate") == true)
        let stranger = try TestParty("root").certify(issuing.get())
        #expect(try await obstacle(leaf, stranger)?.contains("is not signed by the key of 'CN=root,") == true)
        #expect(try await obstacle(leaf, TestParty("other").certify(issuing.get())) == nil)
        let names = try Certificate.Extension(NameConstraints(excludedDNSDomains: ["a.example"]), critical: true)
        let named = try issuing.get().certify(
            client.get(), isAuthority: false,
            [Certificate.Extension(SubjectAlternativeNames([.dnsName("a.example")]), critical: false)])
        let constrained = try root.get().certify(issuing.get(), [names])
        #expect(
            try await obstacle(named, constrained)?.contains("'CN=issuing,O=certprov tests' in its chain has name")
                == true)
        let below = try TestParty("below")
        let short = try Certificate.Extension(BasicConstraints.isCertificateAuthority(maxPathLength: 0), critical: true)
        let path = try await CertificateChain.validation(
            of: below.certify(client.get(), isAuthority: false),
            among: [issuing.get().certify(below), root.get().certify(issuing.get(), isAuthority: false, [short])],
            trusting: [anchor], at: Date())
        #expect(path.path == nil && path.obstacle?.contains("permits a path length of 0, and has 1 CA") == true)
    }
}
