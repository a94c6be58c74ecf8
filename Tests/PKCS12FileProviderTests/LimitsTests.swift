import CertificateProviding
import Foundation
import Glibc
import OpenSSLSupport
import SwiftASN1
import TestSupport
import Testing

@testable import PKCS12FileProvider

/// Files that ask for more than they may. None of it may be done before it is refused.
@Suite struct LimitsTests {
    private let builder = PFXBuilder()

    /// Expects a refusal in far less time than the work would take.
    private func expectRefusal(
        _ file: [UInt8], _ codes: [ProviderError.Code] = [.malformedData], password: String? = "secret"
    ) async throws -> ProviderError {
        let fixture = try FileFixture(file)
        let provider = try PKCS12FileProvider.testing(fixture.path, password: password)
        let error = try await provider.failure()
        #expect(codes.contains(error.code), "\(error)")
        // This thread's time, since the tests beside this one must not count.
        let start = clock()
        var decoder = PKCS12Decoder(library: OpenSSLLibrary(), password: password.map { SecretBytes(utf8: $0) })
        _ = try? decoder.decode(file)
        #expect(clock() - start < .seconds(1))
        #expect(await provider.listIdentities().identities.isEmpty)
        return error
    }

    private func clock() -> Duration {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec)
    }

    static let iterations: [(String, [UInt8])] = [
        ("10^9", PFXBuilder.integer(1_000_000_000)), ("0", PFXBuilder.integer(0)), ("-1", PFXBuilder.integer(-1)),
        ("one too many", PFXBuilder.integer(30_000_001)), ("2^32 + 1", PFXBuilder.integer(1 << 32 + 1)),
        ("Int.max", PFXBuilder.integer(.max)), ("Int.min", PFXBuilder.integer(.min)),
        ("2^71", PFXBuilder.element(2, [0x7f] + [UInt8](repeating: 0xff, count: 8))),
        ("padded 10^9", PFXBuilder.element(2, [0, 0, 0, 0, 0, 0, 0x3b, 0x9a, 0xca, 0])), ("no digits", [2, 0]),
    ]

    @Test(arguments: iterations.map(\.1)) func iterationsOfTheMAC(iterations: [UInt8]) async throws {
        let file = builder.file(parts: []) { _ in builder.macData(iterations: iterations) }
        _ = try await expectRefusal(file)
    }

    @Test(arguments: iterations.map(\.1)) func iterationsOfTheEncryption(iterations: [UInt8]) async throws {
        let salt = builder.octets(Array("saltsalt".utf8))
        let old = builder.sequence(
            PFXBuilder.oid([1, 2, 840, 113549, 1, 12, 1, 3]), builder.sequence(salt, iterations))
        let derivation = builder.sequence(
            PFXBuilder.oid([1, 2, 840, 113549, 1, 5, 12]), builder.sequence(salt, iterations))
        let cipher = builder.sequence(
            PFXBuilder.oid([2, 16, 840, 1, 101, 3, 4, 1, 42]), builder.octets([UInt8](repeating: 1, count: 16)))
        let new = builder.sequence(PFXBuilder.oid([1, 2, 840, 113549, 1, 5, 13]), builder.sequence(derivation, cipher))
        for algorithm in [old, new] {
            _ = try await expectRefusal(builder.file(parts: [builder.encrypted(algorithm: algorithm)]))
            let shrouded = builder.bag(
                [1, 2, 840, 113549, 1, 12, 10, 1, 2], builder.sequence(algorithm, builder.octets([1, 2, 3])))
            _ = try await expectRefusal(builder.file([shrouded]))
        }
    }

    @Test func manyDerivationsTogether() throws {
        var budget = WorkBudget()
        for _ in 1...30 { try budget.spend(1_000_000) }
        #expect(failure { try budget.spend(1) }?.code == .malformedData)
    }

    /// Each key looks for its certificate, and each certificate for its issuer.
    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func moreKeysAndCertificatesThanCanBePaired() async throws {
        let malformed = builder.bag([1, 2, 840, 113549, 1, 12, 10, 1, 1], builder.sequence(builder.octets([1])))
        _ = try await expectRefusal(
            builder.file([[UInt8]](repeating: malformed, count: TestLength.rounds(5000, soak: 20_000))), password: nil)
        let bags = try builder.bags(of: try Samples.identity("many"))
        let many = Array(repeatElement(bags, count: TestLength.rounds(300, soak: 5000)).joined())
        _ = try await expectRefusal(builder.file(many), password: nil)
    }

    @Test(arguments: [(1 << 40, 8, 1), (1 << 62, 1 << 62, 4), (1 << 20, 8, 1), (2, 1, 1 << 40), (-2, -2, 1), (0, 8, 1)])
    func scryptWithHugeParameters(cost: Int, blockSize: Int, parallelization: Int) async throws {
        let derivation = builder.sequence(
            PFXBuilder.oid([1, 3, 6, 1, 4, 1, 11591, 4, 11]),
            builder.sequence(
                builder.octets(Array("saltsalt".utf8)), PFXBuilder.integer(cost), PFXBuilder.integer(blockSize),
                PFXBuilder.integer(parallelization)))
        let cipher = builder.sequence(
            PFXBuilder.oid([2, 16, 840, 1, 101, 3, 4, 1, 42]), builder.octets([UInt8](repeating: 1, count: 16)))
        let algorithm = builder.sequence(
            PFXBuilder.oid([1, 2, 840, 113549, 1, 5, 13]), builder.sequence(derivation, cipher))
        let error = try await expectRefusal(builder.file(parts: [builder.encrypted(algorithm: algorithm)]))
        #expect(error.message.contains("iterations"))
    }

    @Test func nestedTooDeeply() async throws {
        let bags = try builder.bags(of: try Samples.identity("deep"))
        _ = try await expectRefusal(builder.file([builder.nested(bags, depth: 9)]), password: nil)
        _ = try await expectRefusal(builder.file([builder.nested(bags, depth: 100)]), password: nil)
    }

    @Test(
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: [0x30, 0x24, 0xa0, 0x31] as [UInt8], [60, 10_000, 100_000])
    func bombsOfDepth(tag: UInt8, depth: Int) async throws {
        let indefinite = repeatElement([tag, 0x80], count: depth).reduce(into: []) { $0 += $1 }
        _ = try await expectRefusal(indefinite)
        _ = try await expectRefusal(indefinite + [UInt8](repeating: 0, count: 2 * depth))
        // The same where a value is expected.
        _ = try await expectRefusal(builder.file(parts: [indefinite + [UInt8](repeating: 0, count: 2 * depth)]))
        var definite: [UInt8] = []
        for _ in 0..<min(depth, 2000) { definite = PFXBuilder.element(tag, definite) }
        _ = try await expectRefusal(definite)
    }

    static let lengths: [[UInt8]] = [
        [0x30, 0x84, 0xff, 0xff, 0xff, 0xff], [0x30, 0x88] + [UInt8](repeating: 0xff, count: 8),
        [0x30, 0x88, 0x7f] + [UInt8](repeating: 0xff, count: 7), [0x30, 0xff], [0x30, 0xfe] + [1, 2, 3], [0x30],
        [0x30, 0x84, 0, 0, 0], [0x30, 0x80], [0x30, 0x81, 0x01, 0x00], [0x1f, 0xff, 0xff, 0xff, 0xff, 0x7f, 0],
        [0x30, 0x7f], [0], [0xff], [],
    ]

    @Test(arguments: lengths) func lengthsThatAreNotThere(bytes: [UInt8]) async throws {
        _ = try await expectRefusal(bytes)
        // No part at all is a file that holds nothing.
        let codes: [ProviderError.Code] = [bytes.isEmpty ? .notFound : .malformedData]
        _ = try await expectRefusal(builder.file(parts: [bytes]), codes)
        _ = try await expectRefusal(builder.file([bytes]), codes)
    }

    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func manyBags() async throws {
        let identity = try Samples.identity("many")
        let bags = [[UInt8]](repeating: builder.certificate(identity.certificate), count: 2000)
        let fixture = try FileFixture(builder.file(bags + [builder.key(try identity.pkcs8)]))
        #expect(try await PKCS12FileProvider.testing(fixture.path).fetch().certificate == identity.certificate)
    }

    @Test func aFileThatIsTooLarge() async throws {
        let error = try await expectRefusal([UInt8](repeating: 0x30, count: 5 << 20))
        #expect(error.message.contains("the limit is \(4 << 20) bytes"))
    }

    // MARK: Other files

    @Test("A pipe or a device is not read as a PKCS#12 file")
    func neitherAPipeNorADevice() async throws {
        let directory = try TemporaryDirectory()
        mkfifo(directory["pipe.p12"], 0o600)
        for path in [directory["pipe.p12"], "/dev/null", "/dev/zero"] {
            let error = try await PKCS12FileProvider.testing(path).failure()
            #expect(error.code == .configurationInvalid, "\(error)")
        }
    }

    @Test("A missing file is fileNotFound")
    func whatIsNotThere() async throws {
        let directory = try TemporaryDirectory()
        try directory.write([1], to: "file")
        for path in ["missing.p12", "missing/file.p12", "file/below.p12"] {
            let provider = try PKCS12FileProvider.testing(directory[path])
            #expect(try await provider.failure().code == .fileNotFound)
            #expect(await provider.listIdentities().failures.map(\.code) == [.fileNotFound])
            #expect(try provider.getStoredCertificate() == nil)
        }
    }
}

/// RSA keys that other software makes, and that TLS cannot use here.
@Suite struct KeyLimitsTests {
    private let builder = PFXBuilder()

    /// A PKCS#12 file with an RSA key and a certificate for it. Nothing signs with the key.
    private func file(modulusBits bits: Int, isMultiPrime: Bool) throws -> (FileFixture, X509Certificate) {
        let modulus = PFXBuilder.element(2, [0, 0x80] + [UInt8](repeating: 0xff, count: bits / 8 - 1))
        let exponent = PFXBuilder.integer(65537)
        let algorithm = builder.sequence(PFXBuilder.oid([1, 2, 840, 113549, 1, 1, 1]), [5, 0])
        let spki = builder.sequence(algorithm, PFXBuilder.element(3, [0] + builder.sequence(modulus, exponent)))
        let numbers =
            [PFXBuilder.integer(isMultiPrime ? 1 : 0), modulus, exponent]
            + [[UInt8]](repeating: PFXBuilder.integer(3), count: 6)
            + (isMultiPrime ? [builder.sequence(builder.sequence([2, 1, 3], [2, 1, 3], [2, 1, 3]))] : [])
        let key = builder.sequence(PFXBuilder.integer(0), algorithm, builder.octets(builder.constructed(0x30, numbers)))
        let certificate = try Samples.identity("rsa").certificate.replacing(.publicKey, with: spki)
        let bags = [builder.key(key), builder.certificate(certificate)]
        return (try FileFixture(builder.file(bags)), certificate)
    }

    @Test("A key with three primes is refused with the reason, and is not listed as an identity")
    func threePrimes() async throws {
        let (fixture, _) = try file(modulusBits: 3072, isMultiPrime: true)
        let provider = try PKCS12FileProvider.testing(fixture.path)
        let error = try await provider.failure()
        #expect(error.code == .unsupportedAlgorithm && error.message.contains("more than two primes"), "\(error)")
        let list = await provider.listIdentities()
        #expect(list.identities.isEmpty && list.failures.map(\.code) == [.unsupportedAlgorithm], "\(list)")
    }

    @Test("A key that is too large is refused with the limit, and cannot be chosen")
    func tooLarge() async throws {
        let (fixture, certificate) = try file(modulusBits: 16384, isMultiPrime: false)
        let provider = try PKCS12FileProvider.testing(fixture.path)
        let error = try await provider.failure()
        #expect(error.code == .unsupportedAlgorithm, "\(error)")
        #expect(error.message.contains("has 16384 bits; at most 8192 are supported"), "\(error)")
        let list = await provider.listIdentities()
        #expect(list.identities.map(\.certificateChain) == [[certificate]])
        if case .failure(let error)? = list.choice {
            #expect(error.code == .unsupportedAlgorithm)
        } else {
            Issue.record("\(list)")
        }
    }
}
