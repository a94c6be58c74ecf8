import Foundation
import Glibc
import TestSupport
import Testing

@testable import CertificateProviding

@Suite struct FileGroupTests {
    private let directory = Result { try TemporaryDirectory() }

    @Test("Two names that Unicode calls equal are two files")
    func equalNamesAreDifferentFiles() throws {
        let directory = try directory.get()
        let names = ["caf\u{e9}.pem", "cafe\u{301}.pem"]
        for name in names { try directory.write("x".utf8, to: name) }
        let group = FileGroup(directory.path)
        let before = group.stamp()
        #expect(before == group.stamp())
        let bytes = try group.files().map { Array($0.utf8) }
        #expect(bytes == names.reversed().map { Array(directory[$0].utf8) })
        unlink(directory[names[0]])
        #expect(group.stamp() != before)
    }

    @Test("A file whose name is not UTF-8 is refused, and not left out")
    func aNameThatIsNotUTF8() throws {
        let directory = try directory.get()
        try directory.write("x".utf8, to: "a.pem")
        try Subprocess.run(["sh", "-c", "touch \"$(printf 'caf\\351.pem')\""], in: directory.path)
        let error = #expect(throws: ProviderError.self) { _ = try FileGroup(directory.path).files() }
        #expect(error?.code == .configurationInvalid && error?.message.contains("'caf\\e9.pem'; rename it") == true)
    }

    @Test("A file that is overwritten by one of the same size and time has another stamp")
    func aCopyWithTheTimeOfTheOriginal() throws {
        let directory = try directory.get()
        try directory.write("old".utf8, to: "ca.pem")
        try directory.write("new".utf8, to: "other.pem")
        try Subprocess.run(["touch", "-d", "2026-01-01", "ca.pem", "other.pem"], in: directory.path)
        let before = FileStamp(of: directory["ca.pem"])
        // The time of a change has the resolution of the kernel's clock.
        for _ in 0..<100 where FileStamp(of: directory["ca.pem"]) == before {
            try Subprocess.run(["cp", "-p", "other.pem", "ca.pem"], in: directory.path)
        }
        #expect(before != nil && FileStamp(of: directory["ca.pem"]) != before)
    }
}

@Suite struct FileWatchTests {
    @Test("Files are read when two looks have seen the same, and at the third look that sees others each time")
    func whenFilesAreRead() {
        var watch = FileWatch<Int>()
        func due(_ stamps: [Int], inForce: Int = 0) -> [Bool] { stamps.map { watch.isDue($0, inForce: inForce) } }
        #expect(due([0, 0, 1, 1]) == [false, false, false, true])
        watch.succeeded()
        #expect(due([1, 2, 3, 4, 5, 6, 7], inForce: 1) == [false, false, false, true, false, false, true])
        #expect(due([8, 8]) == [false, true])
        // One that was settled in between begins anew.
        #expect(due([9, 9, 10, 11, 11], inForce: 9) == [false, false, false, false, true])
    }
}

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
