import Glibc

/// A value behind a `pthread_mutex_t`, for threads that block.
///
/// Swift's `Mutex` is a priority-inheriting futex on Linux: it spins, and then passes from one thread to the next in the order
/// of their waiting. If more threads than processors share one, each use of it becomes a change of threads. Sixteen callers get
/// a third of the signatures a second that they get with this one.
package final class BlockingMutex<Value: ~Copyable>: @unchecked Sendable {
    // Unchecked: only the thread that has locked `handle` reaches what `value` points to.
    private let handle: UnsafeMutablePointer<pthread_mutex_t>
    // Not a property of this type: the thread sanitizer takes one without a size for the first word of the object.
    @usableFromInline let value: UnsafeMutablePointer<Value>

    package init(_ value: consuming sending Value) {
        self.value = .allocate(capacity: 1)
        self.value.initialize(to: value)
        handle = .allocate(capacity: 1)
        pthread_mutex_init(handle, nil)
    }

    deinit {
        pthread_mutex_destroy(handle)
        handle.deallocate()
        value.deinitialize(count: 1)
        value.deallocate()
    }

    /// Calls `body` with the value, alone. Blocks. Not to be nested.
    @inlinable package func withLock<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
        lock()
        defer { unlock() }
        return try body(&value.pointee)
    }

    /// As ``withLock(_:)``, where no other thread has the value; otherwise returns `nil` without a call.
    @inlinable package func withLockIfAvailable<Result: ~Copyable, Failure: Error>(
        _ body: (inout sending Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result? {
        guard tryLock() else { return nil }
        defer { unlock() }
        return try body(&value.pointee)
    }

    @usableFromInline func lock() { pthread_mutex_lock(handle) }
    @usableFromInline func tryLock() -> Bool { pthread_mutex_trylock(handle) == 0 }
    @usableFromInline func unlock() { pthread_mutex_unlock(handle) }
}
