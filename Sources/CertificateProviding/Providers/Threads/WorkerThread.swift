import Glibc

/// Marks the threads of a pool, so that a caller can tell whether it runs on one.
enum WorkerThread {
    private static let key: pthread_key_t? = {
        var key = pthread_key_t()
        return pthread_key_create(&key, nil) == 0 ? key : nil
    }()

    static func begin(of threads: WorkerThreads) {
        if let key { pthread_setspecific(key, Unmanaged.passUnretained(threads).toOpaque()) }
    }

    static func isOne(of threads: WorkerThreads) -> Bool {
        guard let key else { return false }
        return pthread_getspecific(key) == Unmanaged.passUnretained(threads).toOpaque()
    }
}
