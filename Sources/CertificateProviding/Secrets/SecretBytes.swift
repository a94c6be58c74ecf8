import Glibc

/// Secret bytes: a password, a PIN, a private key.
///
/// The bytes have memory pages of their own, which are locked against swapping and excluded from core dumps if the
/// system permits, and are wiped when the last copy of the value is released. Descriptions never show them, and
/// comparison takes constant time.
public struct SecretBytes: Sendable {
    private let storage: Storage

    /// Owns the pages. Written only inside an initialiser, before it is shared, and read-only afterwards; so threads
    /// may share it without a lock.
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

    /// Copies `bytes`. The caller must wipe the original.
    public init(copying bytes: some Collection<UInt8>) {
        self.init(count: bytes.count) { buffer in
            buffer.copyBytes(from: bytes)
        }
    }

    /// Copies the UTF-8 bytes of `text`.
    public init(utf8 text: String) { self.init(copying: text.utf8) }

    /// Allocates `count` zeroed bytes, which `body` fills in place.
    ///
    /// - Throws: The error that `body` throws; the bytes are wiped then.
    public init<E: Error>(count: Int, filledBy body: (UnsafeMutableRawBufferPointer) throws(E) -> Void) throws(E) {
        let storage = Storage(count: count)
        try body(UnsafeMutableRawBufferPointer(rebasing: storage.pages[0..<count]))
        self.storage = storage
    }

    /// The number of bytes.
    public var count: Int { storage.count }
    /// Whether there are no bytes.
    public var isEmpty: Bool { count == 0 }

    /// Calls `body` with the bytes, valid during the call only. Copy them only into memory that is wiped too.
    ///
    /// - Throws: The error that `body` throws, and no other.
    public func withUnsafeBytes<T, E: Error>(_ body: (UnsafeRawBufferPointer) throws(E) -> T) throws(E) -> T {
        try body(UnsafeRawBufferPointer(rebasing: storage.pages[0..<storage.count]))
    }

    /// Returns the bytes without one line ending at their end, since editors add one to secret files.
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
