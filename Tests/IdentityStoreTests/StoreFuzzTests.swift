import CertificateProviding
import TestSupport
import Testing

@testable import IdentityStore

/// Damaged entries, the same ones in every run.
@Suite struct StoreFuzzTests {
    private static let key = SealingKey(SecretBytes(utf8: "0123456789abcdef0123456789abcdef"))

    @Test func sealedFilesAreOpenedWholeOrNotAtAll() throws {
        let contents = try TestAuthority.KeyKind.allCases.map {
            StoredIdentityCoding.encode(try Samples.stored("seed", kind: $0))
        }
        let seeds = try contents.map { try SealedEnvelope.seal($0, name: "p/e", key: Self.key) }
        var mutator = Mutator(seeds: seeds + [[], Array("certprov\u{1}".utf8)], seed: 1)
        var rounds = FuzzRounds(atLeast: 5000)
        while rounds.next() {
            let file = mutator.next()
            do {
                let content = try SealedEnvelope.open(file, name: "p/e", key: Self.key)
                #expect(seeds.contains(file) && contents.contains(content))
            } catch {
                #expect(error is SealedEnvelope.Failure, "\(error) in \(file.hexEncoded)")
            }
        }
    }

    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func plaintextIsAnIdentityOrRefused() throws {
        let seeds = try TestAuthority.KeyKind.allCases.map {
            StoredIdentityCoding.encode(try Samples.stored("seed", kind: $0)).withUnsafeBytes { Array($0) }
        }
        var mutator = Mutator(seeds: seeds, seed: 2)
        var rounds = FuzzRounds(atLeast: 3000)
        var accepted = 0
        while rounds.next() {
            let bytes = mutator.next()
            do {
                let identity = try StoredIdentityCoding.decode(SecretBytes(copying: bytes))
                #expect(!identity.certificateChain.isEmpty)
                if let key = identity.privateKey { _ = try? SoftwareKey(pkcs8: key, location: .store) }
                accepted += 1
            } catch is StoredIdentityCoding.Malformed {
            } catch is RecordField.CutOff {
            } catch {
                let error = try #require(error as? ProviderError)
                #expect(error.code == .malformedData, "\(error) in \(bytes.hexEncoded)")
            }
        }
        #expect(accepted > 10, "the check reaches what it is about")
    }
}
