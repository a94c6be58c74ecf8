import CertificateProviding
import Foundation
import TestSupport
import Testing

@testable import IdentityStore

/// Tests of vaults in a directory of their own.
protocol VaultTesting {
    var directory: TemporaryDirectory { get }
    var disk: FaultyDisk { get }
}

extension VaultTesting {
    static var cheap: ScryptParameters { ScryptParameters(logarithmOfCost: 1, blockSize: 1, parallelism: 1) }
    var passcode: SecretBytes { SecretBytes(utf8: "correct horse") }
    var wrong: SecretBytes { SecretBytes(utf8: "wrong horse") }
    var test: ProviderID { ProviderID("test") }

    /// The vault of a process that has just started.
    func vault(
        _ id: String = "app", now: Date = Date(timeIntervalSince1970: 1e9), parameters: ScryptParameters = cheap,
        lockTimeout: Duration? = nil, _ change: (inout PasscodePolicy) -> Void = { _ in }
    ) throws -> DataVault {
        var policy = PasscodePolicy()
        change(&policy)
        return try DataVault(
            id, in: directory["state"], policy: policy, keySource: nil, now: { now }, parameters: parameters,
            files: disk.fileSystem, lockTimeout: lockTimeout)
    }

    func code(_ body: () throws -> Void) throws -> ProviderError.Code { try error(body).code }

    func copy() throws -> [String: Data] {
        var copies: [String: Data] = [:]
        for file in directory.contents() {
            copies[file] = try? Data(contentsOf: URL(filePath: directory[file]))
        }
        return copies
    }

    func storedKey() throws -> VaultKeyFile {
        let file = directory["state/applications/app/vault/key"]
        return try VaultKeyFile(Array(Data(contentsOf: URL(filePath: file))))
    }
}
