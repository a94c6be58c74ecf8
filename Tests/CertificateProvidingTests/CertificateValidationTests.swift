import CertificateProviding
import Crypto
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
        let path = try await CertificateChain.validated(
            from: leaf, among: issuers, trusting: [authority], at: Date())
        #expect(path == [leaf, issuers[1], authority])
    }

    @Test func aCancelledValidationSaysSo() async throws {
        let authority = try root.get().certify()
        let leaf = try root.get().certify(client.get(), isAuthority: false)
        let task = Task {
            withUnsafeCurrentTask { $0?.cancel() }
            return try await CertificateChain.validated(from: leaf, among: [], trusting: [authority], at: Date())
        }
        let error = await #expect(throws: CertificateProviderError.self) { try await task.value }
        #expect(error?.code == .userCancelled)
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
        #expect(try await obstacle(leaf, stranger) == nil)
    }
}
