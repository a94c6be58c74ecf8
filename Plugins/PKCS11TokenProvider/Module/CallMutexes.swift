import CP11Kit
import CertificateProviding
import Glibc

/// Mutexes for OpenSC, which up to 0.23 leaves one locked where a card is pulled out in the middle of a call: the next
/// call that wants it would hang for good. (`sc_unlock` returns without unlocking after `sc_lock` has said success for a
/// card that is gone; mended in 0.24 by OpenSC's commit d449feeda.)
///
/// No PKCS#11 library needs a lock between calls, so that what a thread still holds when its call ends is unlocked then. And
/// a thread that locks one again in the same call goes on.
enum CallMutexes {
    /// The holder and the number of its locks, by the mutex's address.
    private static let held = BlockingMutex<[UInt: (thread: pthread_t, count: Int)]>([:])

    /// Whether a library gets these mutexes: only OpenSC, since others do well with p11-kit's.
    static func serve(_ file: String) -> Bool { file.hasSuffix("opensc-pkcs11.so") }

    /// Starts a library with them. Another part of the process may have started it before, with p11-kit's.
    static func initialize(_ functions: CryptokiLibrary.Functions) -> CK_RV {
        var arguments = CK_C_INITIALIZE_ARGS()
        arguments.CreateMutex = { CallMutexes.create($0) }
        arguments.DestroyMutex = { CallMutexes.destroy($0) }
        arguments.LockMutex = { CallMutexes.lock($0) }
        arguments.UnlockMutex = { CallMutexes.unlock($0) }
        arguments.flags = CK_FLAGS(CKF_OS_LOCKING_OK)
        return functions.pointee.C_Initialize?(&arguments) ?? CKR_FUNCTION_NOT_SUPPORTED
    }

    /// Calls `body`, and unlocks what this thread still holds afterwards.
    static func releasing<T>(_ body: () -> T) -> T {
        defer {
            let left = held.withLock { held in
                let own = held.filter { pthread_equal($0.value.thread, pthread_self()) != 0 }
                for address in own.keys { held[address] = nil }
                return own
            }
            for (address, holder) in left {
                let mutex = UnsafeMutablePointer<pthread_mutex_t>(bitPattern: address)
                for _ in 0..<holder.count { if let mutex { pthread_mutex_unlock(mutex) } }
            }
        }
        return body()
    }

    private static func create(_ place: UnsafeMutablePointer<UnsafeMutableRawPointer?>?) -> CK_RV {
        guard let place else { return CKR_ARGUMENTS_BAD }
        var attributes = pthread_mutexattr_t()
        pthread_mutexattr_init(&attributes)
        defer { pthread_mutexattr_destroy(&attributes) }
        pthread_mutexattr_settype(&attributes, Int32(PTHREAD_MUTEX_RECURSIVE))
        let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
        guard pthread_mutex_init(mutex, &attributes) == 0 else {
            mutex.deallocate()
            return CKR_HOST_MEMORY
        }
        place.pointee = UnsafeMutableRawPointer(mutex)
        return CKR_OK
    }

    private static func destroy(_ pointer: UnsafeMutableRawPointer?) -> CK_RV {
        guard let pointer else { return CKR_ARGUMENTS_BAD }
        let mutex = pointer.assumingMemoryBound(to: pthread_mutex_t.self)
        let holder = held.withLock { $0.removeValue(forKey: UInt(bitPattern: pointer)) }
        if let holder {
            // It is another thread's, which will unlock it.
            guard pthread_equal(holder.thread, pthread_self()) != 0 else { return CKR_OK }
            for _ in 0..<holder.count { pthread_mutex_unlock(mutex) }
        }
        pthread_mutex_destroy(mutex)
        mutex.deallocate()
        return CKR_OK
    }

    private static func lock(_ pointer: UnsafeMutableRawPointer?) -> CK_RV {
        guard let pointer else { return CKR_ARGUMENTS_BAD }
        guard pthread_mutex_lock(pointer.assumingMemoryBound(to: pthread_mutex_t.self)) == 0 else {
            return CKR_GENERAL_ERROR
        }
        held.withLock { held in
            let count = held[UInt(bitPattern: pointer)]?.count ?? 0
            held[UInt(bitPattern: pointer)] = (pthread_self(), count + 1)
        }
        return CKR_OK
    }

    private static func unlock(_ pointer: UnsafeMutableRawPointer?) -> CK_RV {
        guard let pointer else { return CKR_ARGUMENTS_BAD }
        let isOwn = held.withLock { held in
            guard let holder = held[UInt(bitPattern: pointer)], pthread_equal(holder.thread, pthread_self()) != 0 else {
                return false
            }
            held[UInt(bitPattern: pointer)] = holder.count > 1 ? (holder.thread, holder.count - 1) : nil
            return true
        }
        guard isOwn else { return CKR_MUTEX_NOT_LOCKED }
        pthread_mutex_unlock(pointer.assumingMemoryBound(to: pthread_mutex_t.self))
        return CKR_OK
    }
}
