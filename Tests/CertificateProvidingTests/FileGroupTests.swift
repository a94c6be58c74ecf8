import CertificateProviding
import Glibc
import TestSupport
import Testing

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
