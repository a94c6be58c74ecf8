import Glibc

/// A POSIX semaphore. Posting and waiting are the only things done with it, and both are thread-safe by themselves.
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

    /// Waits without sleeping, and lets any thread go first that has something to do. Returns false when nothing was
    /// posted in time.
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

    /// Returns false when nothing was posted in time.
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
