import CertificateProviding
import Foundation
import Glibc
import PKCS11TokenProvider
import TestSupport

/// A service that signs with a token on eight tasks until it gets SIGTERM, which a test sends it again and again.
///
///     SigningService MODULE URI PIN-FILE shutdown|exit
///
/// `shutdown` ends as a service should; `exit` as one that knows nothing of that, in the middle of its signatures. With the
/// first argument `soak` it is ``SoakingService``, with `serve` ``ServingService``.
@main enum SigningService {
    static func main() async throws {
        let arguments = CommandLine.arguments
        let other = ["soak": 6, "serve": 4].first { $0.key == arguments.dropFirst().first }
        guard arguments.count == other?.value ?? 5 else {
            throw ProviderError(
                .configurationInvalid,
                "MODULE URI PIN-FILE shutdown|exit, soak URI PIN-FILE STORE PAUSE, or serve PROPERTY-FILE PORT-FILE")
        }
        let (terminations, continuation) = AsyncStream<Void>.makeStream()
        let shutsDown = other != nil || arguments[4] == "shutdown"
        Termination.catchSignal {
            if !shutsDown { exit(0) }
            continuation.yield()
        }
        switch other?.key {
        case "soak": return try await SoakingService.run(arguments[2...], until: terminations)
        case "serve":
            do { return try await ServingService.run(arguments[2], arguments[3], until: terminations) } catch {
                // An error of this function is a trap.
                FileHandle.standardError.write(Data("\(error)\n".utf8))
                exit(1)
            }
        default: break
        }

        let provider = try PKCS11TokenProvider(
            environment: .testing(storage: InMemoryStorage()),
            parameters: ProviderParameters([
                "module-path": .init(arguments[1]), "uri": .init(arguments[2]),
                "pin-source": .init("file:" + arguments[3]),
            ]))
        let key = try await key(of: provider)
        let scheme = key.signatureSchemes[0]
        let tasks = (0..<8).map { number in
            Task.detached { () async -> ProviderError in
                while true {
                    do throws(ProviderError) {
                        _ = try await key.signature(for: [UInt8(number)], using: scheme)
                    } catch { return error }
                }
            }
        }
        print("ready")
        fflush(nil)
        for await _ in terminations { break }
        await provider.shutdown()
        for task in tasks {
            let error = await task.value
            guard error.code == .operationNotAllowed else {
                print("\(error)")
                exit(1)
            }
        }
    }

    /// Tries again as a service does: SoftHSM may fail a login (`CKR_GENERAL_ERROR`) while another process logs in to the token.
    private static func key(of provider: PKCS11TokenProvider) async throws -> any IdentityKey {
        do throws(ProviderError) {
            return try await provider.getCertificate(NoUserInteraction()).key
        } catch {
            guard error.code == .unavailable else { throw error }
        }
        try await Task.sleep(for: .seconds(1))
        return try await provider.getCertificate(NoUserInteraction()).key
    }
}

/// A handler and a thread: a signal source of Dispatch has lost the signal on a busy host.
private enum Termination {
    /// Global, since a handler gets only the signal's number.
    nonisolated(unsafe) private static let semaphore = UnsafeMutablePointer<sem_t>.allocate(capacity: 1)

    static func catchSignal(_ body: @escaping @Sendable () -> Void) {
        sem_init(semaphore, 0, 0)
        Thread.detachNewThread {
            while sem_wait(semaphore) != 0 {}
            body()
        }
        signal(SIGTERM) { _ in sem_post(Termination.semaphore) }
    }
}
