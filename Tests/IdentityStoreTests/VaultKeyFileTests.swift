import CertificateProviding
import Crypto
import Foundation
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct VaultKeyFileTests {
    private static let cheap = ScryptParameters(logarithmOfCost: 1, blockSize: 1, parallelism: 1)
    private let key = SecretBytes(copying: Array(0..<32))
    private let identifier = [UInt8](repeating: 7, count: 16)
    private let passcode = SecretBytes(utf8: "correct horse")

    private func file(
        _ parameters: ScryptParameters = cheap, _ passcode: SecretBytes? = SecretBytes(utf8: "correct horse")
    ) throws
        -> [UInt8]
    {
        try VaultKeyFile.seal(
            key, identifier: identifier, with: VaultSecrets(passcode: passcode, factor: nil), of: "app", parameters,
            VaultTerms(), setAt: Date(timeIntervalSince1970: 1e9))
    }

    @Test func theRightPasscodeOpensIt() throws {
        let read = try VaultKeyFile(file())
        #expect(read.passcodeSetAt == Date(timeIntervalSince1970: 1e9) && !read.hasNoPasscode)
        #expect(read.identifier == identifier && read.parameters == Self.cheap)
        #expect(try read.open(with: VaultSecrets(passcode: passcode), of: "app") == key)
        #expect(try read.open(with: VaultSecrets(passcode: SecretBytes(utf8: "correct horse ")), of: "app") == nil)
        #expect(try read.open(with: VaultSecrets(), of: "app") == nil)
        #expect(
            try read.open(with: VaultSecrets(passcode: passcode), of: "other") == nil, "It is another application's.")
    }

    @Test("A vault without a passcode opens without one")
    func oneWithoutAPasscodeOpensWithNone() throws {
        let read = try VaultKeyFile(file(Self.cheap, nil))
        #expect(read.hasNoPasscode)
        #expect(try read.open(with: VaultSecrets(), of: "app") == key)
    }

    @Test func twoFilesOfOneKeyHaveNothingInCommon() throws {
        let (one, other) = (try file(), try file())
        #expect(one.dropLast(92) != other.dropLast(92), "the salt")
        #expect(one.suffix(80).prefix(48) != other.suffix(80).prefix(48), "key and tag")
    }

    /// Also where the digest of the changed file is right: the seal covers each bit.
    @Test func noBitCanBeChanged() throws {
        let whole = try file().dropLast(SHA256.byteCount)
        for place in whole.indices {
            for bit in 0..<8 {
                var bytes = Array(whole)
                bytes[place] ^= 1 << bit
                bytes += SHA256.hash(data: bytes)
                // A file that asks for more work is refused before that is done, or does not have the same key.
                guard let read = try? VaultKeyFile(bytes), read.parameters.work <= 1 << 20 else { continue }
                #expect(
                    (try? read.open(with: VaultSecrets(passcode: passcode), of: "app")) != .some(key), "at \(place)")
            }
        }
    }

    @Test("A damaged bit anywhere shows before a passcode is tried")
    func aDamagedBitShows() throws {
        let whole = try file()
        for place in whole.indices {
            for bit in 0..<8 {
                var bytes = whole
                bytes[place] ^= 1 << bit
                #expect(throws: VaultKeyFile.Failure.self, "at \(place)") { _ = try VaultKeyFile(bytes) }
            }
        }
    }

    @Test func anotherLengthIsDamaged() throws {
        let whole = try file()
        for bytes in (0..<whole.count).map({ Array(whole[..<$0]) }) + [whole + [0]] {
            #expect { _ = try VaultKeyFile(bytes) } throws: {
                if case .damaged? = $0 as? VaultKeyFile.Failure { true } else { false }
            }
        }
    }

    @Test func aNewerVersionIsTold() throws {
        var bytes = try file()
        bytes[8] = 2
        #expect { _ = try VaultKeyFile(bytes) } throws: {
            if case .newerVersion(2)? = $0 as? VaultKeyFile.Failure { true } else { false }
        }
    }

    /// N, r and p of a file that another user may have written.
    @Test(arguments: [(0, 8, 1), (17, 8, 1), (16, 16, 1), (15, 8, 0), (15, 8, 13), (15, 0, 1), (255, 255, 255)])
    func moreWorkThanPermittedIsRefused(cost: UInt8, blockSize: UInt8, parallelism: UInt8) throws {
        let names = ["logarithmOfCost", "blockSize", "parallelism"]
        let cost = Dictionary(uniqueKeysWithValues: zip(names, [cost, blockSize, parallelism]))
        #expect(throws: VaultKeyFile.Failure.self) { _ = try VaultKeyFile(asking(cost)) }
        let allowed = Dictionary(uniqueKeysWithValues: names.map { ($0, UInt8(1)) })
        #expect(try VaultKeyFile(asking(allowed)).parameters == Self.cheap)
    }

    @Test func aFactorIsNeededBesides() throws {
        let factor = SecretBytes(copying: Array(100..<132))
        let file = try VaultKeyFile(
            VaultKeyFile.seal(
                key, identifier: identifier, with: VaultSecrets(passcode: passcode, factor: factor), of: "app",
                Self.cheap,
                VaultTerms(), setAt: Date(timeIntervalSince1970: 1e9)))
        #expect(try file.open(with: VaultSecrets(passcode: passcode, factor: factor), of: "app") == key)
        #expect(try file.open(with: VaultSecrets(passcode: passcode), of: "app") == nil)
        #expect(try file.open(with: VaultSecrets(factor: factor), of: "app") == nil)
        #expect(try file.open(with: VaultSecrets(passcode: passcode, factor: key), of: "app") == nil)
    }

    @Test func theTermsAreKept() throws {
        var demands = PasscodeDemands()
        (demands.minimumLength, demands.allowsDefault) = (12, false)
        let bytes = try VaultKeyFile.seal(
            key, identifier: identifier, with: VaultSecrets(passcode: passcode), of: "app", Self.cheap,
            VaultTerms(demands: demands), setAt: Date(timeIntervalSince1970: 1e9))
        let read = try VaultKeyFile(bytes)
        #expect(read.terms.demands == demands)
        #expect(try read.open(with: VaultSecrets(passcode: passcode), of: "app") == key)
    }

    /// Returns a file whose header asks for another cost, with the right size and digest.
    private func asking(_ cost: [String: UInt8]) throws -> [UInt8] {
        let file = try file()
        let end = 11 + Int(file[9]) << 8 + Int(file[10])
        var header = try #require(JSONSerialization.jsonObject(with: Data(file[11..<end])) as? [String: Any])
        header["scrypt"] = cost
        let new = try JSONSerialization.data(withJSONObject: header)
        let whole =
            Array(file[..<9]) + [UInt8(new.count >> 8), UInt8(new.count & 0xff)] + new
            + file[end...].dropLast(SHA256.byteCount)
        return whole + SHA256.hash(data: whole)
    }
}
