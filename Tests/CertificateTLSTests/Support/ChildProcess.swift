import Foundation

/// A command whose output arrives as lines. It gets SIGKILL, by its process id, when `body` is through or ten
/// minutes have passed, and is always reaped.
///
/// Foundation's `Process` would block a thread of the cooperative pool in `waitUntilExit`.
struct ChildProcess {
    struct Failure: Error { var message: String }

    let lines: AsyncStream<String>

    static func run<T>(
        _ arguments: [String], _ body: (ChildProcess) async throws -> T
    ) async throws -> T {
        var (input, output): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
        // Not pipes, since Swift does not see pipe2: no other child may inherit an end and keep it open.
        let kind = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, kind, 0, &input) == 0, socketpair(AF_UNIX, kind, 0, &output) == 0 else {
            throw Failure(message: String(cString: strerror(errno)))
        }
        // The child's input stays open, and silent, for as long as the child is wanted.
        defer { close(input[1]) }

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, input[0], 0)
        posix_spawn_file_actions_adddup2(&actions, output[1], 1)
        posix_spawn_file_actions_adddup2(&actions, output[1], 2)
        var pointers = arguments.map { strdup($0) } + [nil]
        defer { for pointer in pointers { free(pointer) } }
        var child: pid_t = 0
        let status = posix_spawnp(&child, arguments[0], &actions, nil, &pointers, environ)
        close(input[0])
        close(output[1])
        guard status == 0 else {
            close(output[0])
            throw Failure(message: "\(arguments[0]): \(String(cString: strerror(status)))")
        }

        let (lines, continuation) = AsyncStream<String>.makeStream()
        let (pid, descriptor) = (child, output[0])
        async let reading: Void = onThread {
            read(descriptor) { continuation.yield($0) }
            continuation.finish()
            kill(pid, SIGKILL)  // for one that overstayed
        }
        let result: Result<T, any Error>
        do {
            result = .success(try await body(ChildProcess(lines: lines)))
        } catch {
            result = .failure(error)
        }
        // Reaped only afterwards, so that the id is the child's own until then.
        kill(pid, SIGKILL)
        await reading
        close(descriptor)
        await onThread {
            var status: Int32 = 0
            while waitpid(pid, &status, 0) < 0 && errno == EINTR {}
        }
        return try result.get()
    }

    /// Runs `work` on a thread of its own. A dispatch queue would have it wait for one of the few threads that also run
    /// all tasks.
    private static func onThread(_ work: @escaping @Sendable () -> Void) async {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread {
                work()
                continuation.resume()
            }
        }
    }

    private static func read(_ descriptor: Int32, _ yield: (String) -> Void) {
        var line: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4096)
        let end = time(nil) + 600
        while true {
            var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            let ready = poll(&waiting, 1, Int32(max(0, end - time(nil))) * 1000)
            if ready < 0 && errno == EINTR { continue }
            guard ready > 0 else { return }
            let count = recv(descriptor, &buffer, buffer.count, 0)
            guard count > 0 else { break }
            for byte in buffer[0..<count] {
                if byte == 0x0a {
                    yield(String(decoding: line, as: UTF8.self))
                    line = []
                } else {
                    line.append(byte)
                }
            }
        }
    }
}
