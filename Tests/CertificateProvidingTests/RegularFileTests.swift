import CertificateProviding
import Foundation
import TestSupport
import Testing

@Suite struct RegularFileTests {
    @Test(arguments: [0, 1, 4095, 4096, 100_000]) func readsWholeFilesWithinTheBound(size: Int) throws {
        let directory = try TemporaryDirectory()
        let bytes = (0..<size).map { UInt8(truncatingIfNeeded: $0) }
        let path = try directory.write(bytes, to: "file")
        #expect(try RegularFile.read(path, atMost: size) == bytes)
        guard size > 0 else { return }
        #expect(throws: RegularFile.Failure.self) { try RegularFile.read(path, atMost: size - 1) }
    }

    /// Files in /proc claim to be empty: to the reader they look like files that grow.
    @Test func readsOnWhereAFileGrows() throws {
        let path = "/proc/self/environ"
        let expected = Array(try Data(contentsOf: URL(filePath: path)))
        try #require(!expected.isEmpty)
        #expect(try RegularFile.read(path, atMost: 1 << 20) == expected)
        #expect(throws: RegularFile.Failure.self) { try RegularFile.read(path, atMost: expected.count - 1) }
    }
}
