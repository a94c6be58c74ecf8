import CertificateProviding
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
            key, identifier: identifier, with: passcode, of: "app", parameters, setAt: Date(timeIntervalSince1970: 1e9))
    }

    @Test func theRightPasscodeOpensIt() throws {
        let read = try VaultKeyFile(file())
        #expect(read.passcodeSetAt == Date(timeIntervalSince1970: 1e9) && !read.hasNoPasscode)
        #expect(read.identifier == identifier && read.parameters == Self.cheap)
        #expect(try read.open(with: passcode, of: "app") == key)
        #expect(try read.open(with: SecretBytes(utf8: "correct horse "), of: "app") == nil)
        #expect(try read.open(with: nil, of: "app") == nil)
        #expect(try read.open(with: passcode, of: "other") == nil, "It is another application's.")
    }

    @Test func oneWithoutAPasscodeOpensWithNone() throws {
        let read = try VaultKeyFile(file(Self.cheap, nil))
        #expect(read.hasNoPasscode)
        #expect(try read.open(with: nil, of: "app") == key)
    }

    @Test func twoFilesOfOneKeyHaveNothingInCommon() throws {
        let (one, other) = (try file(), try file())
        #expect(one[37..<53] != other[37..<53] && one[65...] != other[65...])
    }

    @Test func noBitCanBeChanged() throws {
        let whole = try file()
        for place in whole.indices {
            for bit in 0..<8 {
                var bytes = whole
                bytes[place] ^= 1 << bit
                // What asks for more work is refused before that is done, or is not the same key.
                guard let read = try? VaultKeyFile(bytes), read.parameters.work <= 1 << 20 else { continue }
                #expect((try? read.open(with: passcode, of: "app")) != .some(key), "at \(place)")
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
        var bytes = try file()
        bytes.replaceSubrange(9..<12, with: [cost, blockSize, parallelism])
        #expect(throws: VaultKeyFile.Failure.self) { _ = try VaultKeyFile(bytes) }
    }
}
