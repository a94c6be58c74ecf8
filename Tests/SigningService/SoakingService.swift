import CertificateProviding
import Dispatch
import Foundation
import IdentityStore
import PKCS11TokenProvider
import Synchronization
import TestSupport

/// A service that signs on sixteen tasks until it gets SIGTERM, whatever fails, and says how it goes, a line at a time:
///
///     ready
///     failed CODE MESSAGE
///     status SIGNATURES DESCRIPTORS KILOBYTES    five times a second
///
/// Arguments: `soak URI PIN-FILE STORE PAUSE`, the last of which is each task's rest after a signature, in milliseconds.
enum SoakingService {
    private static let callers = 16

    private final class State: Sendable {
        let signatures = Atomic(0)
        let isOver = Atomic(false)
    }

    static func run(_ arguments: ArraySlice<String>, until terminated: AsyncStream<Void>) async throws {
        let arguments = Array(arguments)
        let storage = IdentityStore(path: arguments[2]).storage(for: PKCS11TokenProvider.id)
        let provider = try PKCS11TokenProvider(
            environment: .testing(storage: storage),
            parameters: ProviderParameters([
                "uri": .init(arguments[0]), "pin-source": .init("file:" + arguments[1]), "timeout": .init("60"),
            ]))
        let key = try await provider.getCertificate(NoUserInteraction()).key
        let scheme = key.signatureSchemes[0]
        let pause = Duration.milliseconds(Int(arguments[3]) ?? 0)
        let state = State()
        say("ready")
        await withTaskGroup { tasks in
            for number in 0..<callers {
                tasks.addTask {
                    var message = [UInt8](repeating: 0, count: 32)
                    while !state.isOver.load(ordering: .relaxed) {
                        message[0] = UInt8(number)
                        message[1] &+= 1
                        do throws(ProviderError) {
                            let signature = try await key.signature(for: message, using: scheme)
                            guard key.publicKey.isValidSignature(signature, for: message, using: scheme) else {
                                say("failed wrongSignature \(signature)")
                                continue
                            }
                            state.signatures.add(1, ordering: .relaxed)
                            if pause > .zero { try? await Task.sleep(for: pause) }
                        } catch {
                            if state.isOver.load(ordering: .relaxed), error.code == .operationNotAllowed { return }
                            say("failed \(error.code) \(error.message.replacing("\n", with: " "))")
                            try? await Task.sleep(for: .milliseconds(50))
                        }
                    }
                }
            }
            tasks.addTask {
                while !state.isOver.load(ordering: .relaxed) {
                    say("status \(state.signatures.load(ordering: .relaxed)) \(descriptors()) \(kilobytes())")
                    try? await Task.sleep(for: .milliseconds(200))
                }
            }
            for await _ in terminated { break }
            state.isOver.store(true, ordering: .relaxed)
            // In the middle of signatures.
            await provider.shutdown()
        }
    }

    /// Writes a line at once.
    private static func say(_ line: String) { FileHandle.standardOutput.write(Data((line + "\n").utf8)) }

    private static func descriptors() -> Int {
        (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd").count) ?? 0
    }

    /// The memory in use.
    private static func kilobytes() -> Int {
        let pages = (try? String(contentsOfFile: "/proc/self/statm", encoding: .utf8))?.split(separator: " ")
        return (pages.flatMap { $0.count > 1 ? Int($0[1]) : nil } ?? 0) * 4
    }
}
