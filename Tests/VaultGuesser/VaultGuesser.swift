import CertificateProviding
import Foundation
import IdentityStore

/// Tries a passcode once, and may be killed while it does.
///
///     VaultGuesser STATE-DIRECTORY APPLICATION-ID PASSCODE MAX-ATTEMPTS LOGARITHM-OF-COST
///
/// Writes `unlocked` or the error's code, and on a second line by how many KiB the process has grown.
@main enum VaultGuesser {
    static func main() throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 6, let limit = Int(arguments[4]), let cost = UInt8(arguments[5]) else {
            throw ProviderError(
                .configurationInvalid, "STATE-DIRECTORY APPLICATION-ID PASSCODE MAX-ATTEMPTS LOGARITHM-OF-COST")
        }
        var policy = PasscodePolicy()
        policy.maximumAttempts = limit
        let before = residentMemory()
        do throws(ProviderError) {
            let vault = try DataVault(
                arguments[2], in: arguments[1], policy: policy,
                parameters: ScryptParameters(logarithmOfCost: cost, blockSize: 8, parallelism: 1))
            try vault.unlock(SecretBytes(utf8: arguments[3]))
            print("unlocked")
        } catch {
            print(error.code)
        }
        print(residentMemory() - before)
    }

    /// The most that was ever in memory, in KiB.
    private static func residentMemory() -> Int {
        // Not by getrusage, which also counts the program that has started this one.
        let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
        return line?.split(separator: " ").compactMap { Int($0) }.first ?? 0
    }
}
