package import CertificateProviding
import Dispatch

/// A result that one thread waits for, set by another.
package final class BlockingResult<Value: Sendable>: Sendable {
    private let value = BlockingMutex<Result<Value, CertificateProviderError>?>(nil)
    private let semaphore = DispatchSemaphore(value: 0)

    package init() {}

    package func set(_ result: Result<Value, CertificateProviderError>) {
        value.withLock { $0 = result }
        semaphore.signal()
    }

    package func wait() -> Result<Value, CertificateProviderError> {
        semaphore.wait()
        return value.withLock { value in
            value ?? .failure(CertificateProviderError(.internal, "A plugin's answer is missing."))
        }
    }
}
