import Glibc

/// Bytes that must not be seen: a password, a PIN, a private key.
///
/// They live in pages of their own that are locked against swapping and left out of core dumps where the system
/// permits, and are wiped when the last copy of the value goes. They appear in no description, and equality takes the
/// same time whatever the bytes are.
public struct SecretBytes: Sendable {
    private let storage: Storage

    /// Owns the pages. Written only inside an initialiser, before anyone else can see it, and read-only afterwards:
    /// this is why it may be shared between threads without a lock.
    private final class Storage: @unchecked Sendable {
        let pages: UnsafeMutableRawBufferPointer
        let count: Int

        init(count: Int) {
            let pageSize = Int(getpagesize())
            let size = max(1, (count + pageSize - 1) / pageSize) * pageSize
            let flags = MAP_PRIVATE | MAP_ANONYMOUS
            guard let base = mmap(nil, size, PROT_READ | PROT_WRITE, flags, -1, 0), base != MAP_FAILED else {
                preconditionFailure("out of memory")  // as for any Swift allocation
            }
            // Best effort: RLIMIT_MEMLOCK may be used up, and the secret must still be usable then.
            _ = mlock(base, size)
            _ = madvise(base, size, MADV_DONTDUMP)
            self.pages = UnsafeMutableRawBufferPointer(start: base, count: size)
            self.count = count
        }

        deinit {
            guard let base = pages.baseAddress else { return }
            explicit_bzero(base, pages.count)
            munmap(base, pages.count)
        }
    }

    /// Copies `bytes`. Wiping the original stays the caller's business.
    public init(copying bytes: some Collection<UInt8>) {
        self.init(count: bytes.count) { buffer in
            _ = buffer.initializeMemory(as: UInt8.self, from: bytes)
        }
    }

    /// Copies the UTF-8 bytes of `text`.
    public init(utf8 text: String) { self.init(copying: text.utf8) }

    /// Makes room for `count` bytes, zeroed, and lets `body` fill them in place.
    public init<E: Error>(count: Int, filledBy body: (UnsafeMutableRawBufferPointer) throws(E) -> Void) throws(E) {
        let storage = Storage(count: count)
        try body(UnsafeMutableRawBufferPointer(rebasing: storage.pages[0..<count]))
        self.storage = storage
    }

    public var count: Int { storage.count }
    public var isEmpty: Bool { count == 0 }

    /// Lends the bytes for the length of `body`. Copy them out only into something that is wiped as well.
    public func withUnsafeBytes<T, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> T) throws(E) -> T {
        try body(UnsafeRawBufferPointer(rebasing: storage.pages[0..<storage.count]))
    }

    /// Returns the bytes without one line ending at their end: a secret file is usually written by an editor.
    public func trimmingLineEnding() -> SecretBytes {
        withUnsafeBytes { bytes in
            var end = bytes.count
            if end > 0, bytes[end - 1] == 0x0a {
                end -= 1
                if end > 0, bytes[end - 1] == 0x0d { end -= 1 }
            }
            return SecretBytes(copying: bytes[0..<end])
        }
    }
}

extension SecretBytes: Equatable {
    public static func == (left: SecretBytes, right: SecretBytes) -> Bool {
        guard left.count == right.count else { return false }
        return left.withUnsafeBytes { leftBytes in
            right.withUnsafeBytes { rightBytes in
                var difference: UInt8 = 0
                for index in 0..<leftBytes.count { difference |= leftBytes[index] ^ rightBytes[index] }
                return difference == 0
            }
        }
    }
}

extension SecretBytes: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    public var description: String { "<secret>" }
    public var debugDescription: String { "<secret>" }
    public var customMirror: Mirror { Mirror(self, children: []) }
}
