package import CertificateProviding
import Dispatch

/// A result that one thread waits for, set by another.
package final class BlockingResult<Value: Sendable>: Sendable {
    private let value = BlockingMutex<Result<Value, ProviderError>?>(nil)
    private let semaphore = DispatchSemaphore(value: 0)

    package init() {}

    package func set(_ result: Result<Value, ProviderError>) {
        value.withLock { $0 = result }
        semaphore.signal()
    }

    /// Returns `nil` if there is no result within that time.
    package func wait(atMost time: Duration) -> Result<Value, ProviderError>? {
        let milliseconds = Int(clamping: Int64(time / .milliseconds(1)))
        guard semaphore.wait(timeout: .now() + .milliseconds(milliseconds)) == .success else { return nil }
        return value.withLock { $0 }
    }

    package func wait() -> Result<Value, ProviderError> {
        semaphore.wait()
        return value.withLock { value in
            value ?? .failure(ProviderError(.internal, "A plugin's answer is missing."))
        }
    }
}
