import Synchronization

/// Announces that the files have changed that a provider reads its identity from. Looks at them every two seconds (`stat`), which
/// works on every file system.
///
/// A change is announced when two looks have seen the same, and the files can be read. Files that cannot be read, such as a key
/// and a certificate that do not fit, may be on the way: they are tried at each look for a minute, and announced only then.
public final class SourceWatch: UpdateAnnouncing {
    /// The files of a source, as a look finds them.
    public enum State: Sendable {
        /// They have nothing new.
        case unchanged
        /// They have another identity.
        case ready
        /// They cannot be read now.
        case unreadable
    }

    private let environment: ProviderEnvironment
    private let stamps: @Sendable () -> [FileStamp?]
    private let read: @Sendable () -> State
    private let isChanged: @Sendable () -> Bool

    private struct Followers {
        /// The stamps of the files in use; `nil` if none were read.
        var inUse: [FileStamp?]?
        var streams: [Int: AsyncStream<Void>.Continuation] = [:]
        var last = 0
        var isEnded = false
    }
    private let followers = Mutex(Followers())

    /// The time between two looks.
    package static let interval = Duration.seconds(2)
    /// The number of looks in the minute for which files that cannot be read are not an error.
    static let looksBeforeFailure = 30

    /// Creates a watch. Looks at nothing yet.
    ///
    /// - Parameters:
    ///   - stamps: Looks at the files, by `stat` only. Blocks on the file system.
    ///   - read: Reads the files and returns what they have. Called on the environment's executor, and may block for a bounded
    ///     time.
    ///   - isChanged: What ``hasUpdate()`` returns: for a provider that stores a copy of its files' identity.
    public init(
        _ environment: ProviderEnvironment, stamps: @escaping @Sendable () -> [FileStamp?],
        read: @escaping @Sendable () -> State, isChanged: @escaping @Sendable () -> Bool = { false }
    ) {
        (self.environment, self.stamps, self.read, self.isChanged) = (environment, stamps, read, isChanged)
    }

    /// Notes which files the provider has read, as they were before it read them.
    public func use(_ stamps: [FileStamp?]) { followers.withLock { $0.inUse = stamps } }

    /// True: the identity is read from this host's files.
    public var isLocal: Bool { true }

    public func hasUpdate() -> Bool { isChanged() }

    public func announcements() -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let number = followers.withLock { followers -> Int? in
            guard !followers.isEnded else { return nil }
            followers.last += 1
            followers.streams[followers.last] = continuation
            return followers.last
        }
        guard let number else {
            continuation.finish()
            return stream
        }
        let looks = Task { [self] in
            await look(continuation)
            continuation.finish()
        }
        continuation.onTermination = { [weak self] _ in
            looks.cancel()
            _ = self?.followers.withLock { $0.streams.removeValue(forKey: number) }
        }
        return stream
    }

    /// Ends all streams.
    public func end() {
        let streams = followers.withLock { followers in
            followers.isEnded = true
            return followers.streams.values
        }
        for stream in streams { stream.finish() }
    }

    private func look(_ continuation: AsyncStream<Void>.Continuation) async {
        var watch = FileWatch<[FileStamp?]?>()
        var unreadable = 0
        while !Task.isCancelled {
            do { try await environment.sleep(Self.interval) } catch { return }
            let (inUse, stamps, read) = (followers.withLock(\.inUse), stamps, read)
            guard let seen = try? await environment.executor.run({ () throws(ProviderError) in stamps() })
            else { return }
            guard watch.isDue(seen, inForce: inUse) else {
                if seen == inUse { unreadable = 0 }
                continue
            }
            guard let state = try? await environment.executor.run({ () throws(ProviderError) in read() })
            else { return }
            switch state {
            case .unchanged:
                use(seen)
                continue
            case .unreadable where unreadable < Self.looksBeforeFailure:
                unreadable += 1
                continue
            case .ready, .unreadable:
                watch.tryLater()
                continuation.yield()
            }
        }
    }
}
