import Glibc

/// The writable memory of this process.
public enum ProcessMemory {
    public struct Failure: Error, CustomStringConvertible { public var description: String }

    /// How often a value is in this process's memory.
    /// - Parameter inverted: The value's octets, each inverted: the value itself would be found here.
    public static func places(of inverted: [UInt8]) throws -> Int {
        let memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC)
        guard memory >= 0, let first = inverted.first else { throw Failure(description: "no memory") }
        defer { close(memory) }
        let size = 1 << 20
        let window = UnsafeMutableRawBufferPointer.allocate(byteCount: size + inverted.count, alignment: 16)
        defer { window.deallocate() }
        guard let base = window.baseAddress else { return 0 }
        var count = 0
        for line in try Self.memoryMap().split(separator: "\n") {
            let fields = line.split(separator: " ")
            let ends = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
            guard ends.count == 2, fields[1].hasPrefix("rw") else { continue }
            var address = ends[0]
            while address < ends[1] {
                let wanted = min(size + inverted.count, Int(ends[1] - address))
                let got = pread(memory, base, wanted, off_t(bitPattern: address))
                guard got > 0 else { break }
                var start = 0
                while start <= got - inverted.count,
                    let found = memchr(base + start, Int32(~first), got - inverted.count - start + 1)
                {
                    let offset = found - base
                    if inverted.indices.allSatisfy({ window[offset + $0] == ~inverted[$0] }) { count += 1 }
                    start = offset + 1
                }
                address += UInt(size)
            }
        }
        return count
    }

    /// Read to its end, which its size does not tell.
    private static func memoryMap() throws -> String {
        let file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { throw Failure(description: "no memory map") }
        defer { close(file) }
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while case let count = read(file, &buffer, buffer.count), count > 0 { bytes += buffer.prefix(count) }
        return String(decoding: bytes, as: UTF8.self)
    }
}
