import Synchronization

/// Announces that the files have changed that a provider reads its identity from. Looks at them every two seconds (`stat`), which
/// works on every file system.
///
/// A change is announced when two looks have seen the same, and the files can be read. Files that cannot be read, such as a key
/// and a certificate that do not fit, may be on the way: they are tried at each look for a minute, and announced only then.
///
/// The provider takes from a look what that has read, by ``take(_:)``, and so reads no file twice.
public final class SourceWatch<Loaded: Sendable>: UpdateAnnouncing {
    private let environment: ProviderEnvironment
    private let stamps: @Sendable () -> [FileStamp?]
    private let read: @Sendable () throws(ProviderError) -> Loaded?
    private let isChanged: @Sendable () -> Bool

    private struct State {
        /// The stamps of the files in use; `nil` if none were read.
        var inUse: [FileStamp?]?
        /// The files that the last look has read, until they are taken.
        var loaded: (stamps: [FileStamp?], content: Loaded)?
        var isEnded = false
    }
    private let state = Mutex(State())

    /// The number of looks in the minute for which files that cannot be read are not an error.
    static var looksBeforeFailure: Int { 30 }

    /// Creates a watch. Looks at nothing yet.
    ///
    /// - Parameters:
    ///   - stamps: Looks at the files, by `stat` only. Blocks on the file system.
    ///   - read: Reads the files and returns what they have; `nil` if that is nothing new. Throws if they cannot be read now. Called on
    ///     the environment's executor, and may block for a bounded time.
    ///   - isChanged: What ``hasUpdate()`` returns: for a provider that stores a copy of its files' identity.
    public init(
        _ environment: ProviderEnvironment, stamps: @escaping @Sendable () -> [FileStamp?],
        read: @escaping @Sendable () throws(ProviderError) -> Loaded?,
        isChanged: @escaping @Sendable () -> Bool = { false }
    ) {
        (self.environment, self.stamps, self.read, self.isChanged) = (environment, stamps, read, isChanged)
    }

    /// Returns what the last look has read of files with these stamps, once; `nil` if it has not: the provider reads them itself then.
    public func take(_ stamps: [FileStamp?]) -> Loaded? {
        state.withLock { state in
            guard let loaded = state.loaded, loaded.stamps == stamps else { return nil }
            state.loaded = nil
            return loaded.content
        }
    }

    /// Notes which files the provider has read, as they were before it read them.
    public func use(_ stamps: [FileStamp?]) { state.withLock { ($0.inUse, $0.loaded) = (stamps, nil) } }

    /// True: the identity is read from this host's files.
    public var isLocal: Bool { true }

    public func hasUpdate() -> Bool { isChanged() }

    public func announcements() -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let looks = Task { [self] in
            await look(continuation)
            continuation.finish()
        }
        continuation.onTermination = { _ in looks.cancel() }
        return stream
    }

    /// Ends all streams, with their next look.
    public func end() { state.withLock { ($0.isEnded, $0.loaded) = (true, nil) } }

    private func look(_ continuation: AsyncStream<Void>.Continuation) async {
        var watch = FileWatch<[FileStamp?]?>()
        var unreadable = 0
        while !Task.isCancelled {
            do { try await environment.sleep(.seconds(2)) } catch { return }
            let (inUse, loaded, isEnded) = state.withLock { ($0.inUse, $0.loaded?.stamps, $0.isEnded) }
            if isEnded { return }
            guard let seen = try? await environment.executor.run({ [stamps] () throws(ProviderError) in stamps() })
            else { return }
            guard watch.isDue(seen, inForce: inUse) else {
                if seen == inUse { unreadable = 0 }
                continue
            }
            // Files that were announced and not taken yet are not read again.
            if seen != loaded {
                do throws(ProviderError) {
                    guard let content = try await environment.executor.run(read) else {
                        use(seen)
                        continue
                    }
                    state.withLock { $0.loaded = (seen, content) }
                } catch {
                    unreadable += 1
                    if unreadable <= Self.looksBeforeFailure { continue }
                }
            }
            watch.tryLater()
            continuation.yield()
        }
    }
}
