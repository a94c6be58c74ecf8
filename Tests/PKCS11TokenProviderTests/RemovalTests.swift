import CertificateProviding
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

/// A token that goes away while its key is in use, and comes back.
@Suite(.timeLimit(.minutes(5))) struct RemovalTests {
    @Test func theKeyWorksAgainWithoutARestart() async throws {
        let token = try SoftHSMDirectory(of: TokenFarm.SoftHSMToken.moving.rawValue)
        let identity = try await TokenSetup(token: TokenFarm.SoftHSMToken.moving.rawValue).identity()
        let key = identity.key
        let end = Flag()
        try await withThrowingTaskGroup(of: [CertificateProviderError].self) { tasks in
            defer { end.raise() }
            for task in 0..<4 {
                tasks.addTask {
                    var errors: [CertificateProviderError] = []
                    while !end.isRaised {
                        do {
                            let message = Array("\(task) \(errors.count)".utf8)
                            let signature = try await key.signature(for: message, using: .ecdsaP256SHA256)
                            // Never with another key.
                            #expect(key.publicKey.isValidSignature(signature, for: message, using: .ecdsaP256SHA256))
                        } catch let error as CertificateProviderError {
                            errors.append(error)
                            await Task.yield()
                        }
                    }
                    return errors
                }
            }
            for _ in 0..<3 {
                try token.remove()
                let error = try await Self.firstFailure(of: key)
                #expect(error.code == .tokenNotPresent, "\(error)")
                try token.putBack()
                try await Self.firstSignature(of: key)
            }
            end.raise()
            for try await errors in tasks {
                let others = errors.filter { $0.code != .tokenNotPresent }
                #expect(others.isEmpty, "\(others.count) of \(errors.count): \(String(describing: others.first))")
            }
        }
        try await identity.verifyPossession()
    }

    private static func firstFailure(of key: any IdentityKey) async throws -> CertificateProviderError {
        while true {
            do throws(CertificateProviderError) {
                _ = try await key.signature(for: [1], using: .ecdsaP256SHA256)
            } catch { return error }
        }
    }

    private static func firstSignature(of key: any IdentityKey) async throws {
        let end = ContinuousClock.now + .seconds(15)
        while true {
            do {
                _ = try await key.signature(for: [1], using: .ecdsaP256SHA256)
                return
            } catch {
                guard ContinuousClock.now < end else { throw error }
                await Task.yield()
            }
        }
    }
}

private final class Flag: Sendable {
    private let state = Mutex(false)
    var isRaised: Bool { state.withLock { $0 } }
    func raise() { state.withLock { $0 = true } }
}

/// Where SoftHSM keeps a token.
private struct SoftHSMDirectory {
    private let path, elsewhere: String

    init(of label: String) throws {
        let farm = try TokenFarm.shared()
        let directories = try FileManager.default.contentsOfDirectory(atPath: farm.file("softhsm"))
        let name = try #require(
            directories.first { directory in
                let token = FileManager.default.contents(atPath: farm.file("softhsm/\(directory)/token.object"))
                return token?.range(of: Data(label.utf8)) != nil
            })
        (path, elsewhere) = (farm.file("softhsm/" + name), farm.file("removed-" + name))
    }

    func remove() throws { try #require(rename(path, elsewhere) == 0) }
    /// SoftHSM reads again only what has changed: a wrong PIN and a right one from another process do that.
    func putBack() throws {
        try #require(rename(elsewhere, path) == 0)
        let token = TokenFarm.SoftHSMToken.moving.rawValue
        let tool = ["pkcs11-tool", "--module", TestModule.softhsm.library, "--token-label", token, "--login", "--pin"]
        #expect(throws: (any Error).self) { try Subprocess.run(tool + [TokenFarm.wrongPIN, "--list-objects"]) }
        try Subprocess.run(tool + [TokenFarm.pin, "--list-objects"])
    }
}
