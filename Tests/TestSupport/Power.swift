public import CertificateProviding
import Synchronization

/// The rest of a process's life, in steps: a kill at any of them.
public final class Power: Sendable {
    private let left = Mutex<Int?>(nil)

    public init() {}

    /// The steps after these throw.
    public func cut(after steps: Int) { left.withLock { $0 = steps } }
    public func restore() { left.withLock { $0 = nil } }
    public var isOff: Bool { left.withLock { $0 == 0 } }

    public func spend() throws(ProviderError) {
        let isOff = left.withLock { left in
            guard let steps = left else { return false }
            if steps > 0 { left = steps - 1 }
            return steps == 0
        }
        if isOff { throw ProviderError(.internal, "The process was killed.") }
    }
}
