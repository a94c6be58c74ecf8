import Glibc

/// A POSIX semaphore. Only posted to and waited for; both are thread-safe.
final class Semaphore: @unchecked Sendable {
    private let semaphore: UnsafeMutablePointer<sem_t>

    init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    func post() { sem_post(semaphore) }

    /// Waits without sleeping, and yields to other threads that have work. Returns false if nothing was posted in time.
    func look(for duration: Duration) -> Bool {
        let end = ContinuousClock.now + duration
        repeat {
            for _ in 0..<8 {
                if sem_trywait(semaphore) == 0 { return true }
                sched_yield()
            }
        } while ContinuousClock.now < end
        return false
    }

    /// Waits at most `seconds`. Returns false if nothing was posted in time.
    func wait(seconds: Int) -> Bool {
        var deadline = timespec()
        // The wall clock, since there is no other for this call; a step of it only changes when an idle thread ends.
        clock_gettime(CLOCK_REALTIME, &deadline)
        deadline.tv_sec += seconds
        while sem_timedwait(semaphore, &deadline) != 0 {
            if errno != EINTR { return false }
        }
        return true
    }
}
