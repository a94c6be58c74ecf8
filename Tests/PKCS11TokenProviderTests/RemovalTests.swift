import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// A token that goes away while its key is in use.
@Suite(.timeLimit(.minutes(20))) struct RemovalTests {
    /// Signatures in progress fail since the token is gone, and the other tokens of the module go on.
    @Test func theTokenIsNotPresent() async throws {
        let token = TokenFarm.SoftHSMToken.moving.rawValue
        let directory = try SoftHSMDirectory(of: token)
        let key = try await TokenSetup(token: token).identity().key
        let other = try await TokenSetup(.softhsm).identity().key
        let end = Flag()
        try await withThrowingTaskGroup(of: [ProviderError].self) { tasks in
            defer { end.raise() }
            for task in 0..<4 {
                tasks.addTask {
                    var errors: [ProviderError] = []
                    while !end.isRaised {
                        do throws(ProviderError) {
                            let message = Array("\(task) \(errors.count)".utf8)
                            let signature = try await key.signature(for: message, using: .ecdsaP256SHA256)
                            #expect(key.publicKey.isValidSignature(signature, for: message, using: .ecdsaP256SHA256))
                        } catch {
                            errors.append(error)
                        }
                    }
                    return errors
                }
            }
            try directory.remove()
            #expect(await Self.firstFailure(of: key).code == .tokenNotPresent)
            for _ in 0..<20 { _ = try await other.signature(for: [1], using: .ecdsaP256SHA256) }
            end.raise()
            for try await errors in tasks {
                let others = errors.filter { $0.code != .tokenNotPresent }
                #expect(others.isEmpty, "\(others.count) of \(errors.count): \(String(describing: others.first))")
            }
        }
        let setup = try TokenSetup(token: token)
        #expect(await failure { _ = try await setup.identity() }?.code == .tokenNotPresent)
        #expect(try setup.provider().getStoredCertificate() == nil)
    }

    private static func firstFailure(of key: any IdentityKey) async -> ProviderError {
        while true {
            do throws(ProviderError) {
                _ = try await key.signature(for: [1], using: .ecdsaP256SHA256)
            } catch { return error }
        }
    }
}

final class Flag: Sendable {
    private let state = Mutex(false)
    var isRaised: Bool { state.withLock { $0 } }
    func raise() { state.withLock { $0 = true } }
}

/// The directory of a SoftHSM token.
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
}
