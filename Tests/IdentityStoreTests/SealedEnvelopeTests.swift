import Crypto
import CertificateProviding
import Crypto
import TestSupport
import Testing

@testable import IdentityStore

@Suite struct SealedEnvelopeTests {
    private static let key = SealingKey(SecretBytes(utf8: "0123456789abcdef0123456789abcdef"))
    private static let content = SecretBytes(utf8: "what is sealed")

    private func sealed() throws -> [UInt8] {
        try SealedEnvelope.seal(Self.content, name: "p/e", key: Self.key)
    }

    @Test func opensWhatItSealed() throws {
        let file = try sealed()
        #expect(try SealedEnvelope.open(file, name: "p/e", key: Self.key) == Self.content)
        #expect(file.starts(with: Array("certprov".utf8) + [1]))
        #expect(SealedEnvelope.version(of: file) == 1)
        #expect(try sealed() != file, "a nonce is used once")
        let empty = try SealedEnvelope.seal(SecretBytes(copying: []), name: "", key: Self.key)
        #expect(try SealedEnvelope.open(empty, name: "", key: Self.key).isEmpty)
    }

    @Test func refusesEveryOtherLength() throws {
        let file = try sealed()
        for length in 0..<file.count {
            #expect(throws: SealedEnvelope.Failure.self) {
                _ = try SealedEnvelope.open(Array(file.prefix(length)), name: "p/e", key: Self.key)
            }
        }
        #expect(throws: SealedEnvelope.Failure.self) {
            _ = try SealedEnvelope.open(file + [0], name: "p/e", key: Self.key)
        }
    }

    @Test func refusesEveryFlippedBit() throws {
        let file = try sealed()
        for bit in 0..<file.count * 8 {
            var damaged = file
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            #expect(throws: SealedEnvelope.Failure.self, "bit \(bit)") {
                _ = try SealedEnvelope.open(damaged, name: "p/e", key: Self.key)
            }
        }
    }

    @Test func tellsItsFailuresApart() throws {
        let file = try sealed()
        func failure(_ file: [UInt8], name: String = "p/e", key: SealingKey = Self.key) -> String {
            do {
                _ = try SealedEnvelope.open(file, name: name, key: key)
                return "none"
            } catch { return "\(error)" }
        }
        var newer = file
        newer[8] = 9
        var older = file
        older[8] = 0
        #expect(failure(file, name: "p/f") == "damaged")
        #expect(failure(file, key: SealingKey(SecretBytes(utf8: "another"))) == "otherKey")
        #expect(failure(newer) == "newerVersion(9)")
        #expect(failure(older) == "damaged")
        #expect(failure(Array("-----BEGIN".utf8)) == "notSealed")
        #expect(failure([]) == "notSealed")
    }

    @Test func theKeysNameSaysNothingAboutIt() {
        let material = Array("0123456789abcdef0123456789abcdef".utf8)
        let key = SealingKey(SecretBytes(copying: material))
        #expect(key.identifier == SealingKey(SecretBytes(copying: material)).identifier)
        #expect(!key.key.withUnsafeBytes { Array($0).starts(with: key.identifier) })
        #expect(!material.starts(with: key.identifier))
    }
}

@Suite struct DamagedEntryTests {
    /// The smallest entry there is: a certificate without a key.
    private func smallEntry() throws -> (StoreFixture, [UInt8]) {
        let fixture = try StoreFixture()
        let identity = StoredIdentity(
            certificateChain: [try Samples.stored("s").certificateChain[0]], privateKey: nil)
        try fixture.storage().setEntry(identity, named: "entry")
        return (fixture, try fixture.directory.read(StoreFixture.entryFile))
    }

    @Test func cutOffAnywhere() throws {
        let (fixture, file) = try smallEntry()
        let storage = fixture.storage()
        for length in 0..<file.count {
            try fixture.directory.write(file.prefix(length), to: StoreFixture.entryFile)
            #expect(try error { _ = try storage.entry(named: "entry") }.code == .storeReadFailed, "\(length)")
        }
    }

    @Test(.enabled(if: TestLength.hasSeconds, "it takes seconds"))
    func anyBitFlipped() throws {
        let (fixture, file) = try smallEntry()
        let storage = fixture.storage()
        for bit in 0..<file.count * 8 {
            var damaged = file
            damaged[bit / 8] ^= 1 << UInt8(bit % 8)
            try fixture.directory.write(damaged, to: StoreFixture.entryFile)
            #expect(try error { _ = try storage.entry(named: "entry") }.code == .storeReadFailed, "bit \(bit)")
        }
    }

    @Test("A damaged entry is replaced by the next write")
    func isReplacedByTheNextWrite() throws {
        let (fixture, file) = try smallEntry()
        try fixture.directory.write(file.dropLast(), to: StoreFixture.entryFile)
        let identity = try Samples.stored("next")
        try fixture.storage().setEntry(identity, named: "entry")
        #expect(try fixture.storage().entry(named: "entry") == identity)
    }
}
