import CertificateProviding
import Foundation
import TestSupport
import Testing

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
}
