/// Jobs that wait for a thread: first in, first out.
struct JobQueue {
    private var incoming: [WorkerThreads.Job] = []
    /// In reverse order: the next job is the last element.
    private var outgoing: [WorkerThreads.Job] = []

    var isEmpty: Bool { incoming.isEmpty && outgoing.isEmpty }

    mutating func append(_ job: @escaping WorkerThreads.Job) { incoming.append(job) }

    mutating func popFirst() -> WorkerThreads.Job? {
        if outgoing.isEmpty {
            outgoing = incoming.reversed()
            incoming.removeAll(keepingCapacity: true)
        }
        return outgoing.popLast()
    }
}
