import CertificateProviding
import Dispatch
import Foundation
import Glibc
import Synchronization
import TestSupport
import Testing

@Suite struct SecretBytesTests {
    @Test("Secrets are compared byte by byte")
    func comparesBytes() {
        let secret = SecretBytes(utf8: "geheim")
        #expect(secret == SecretBytes(copying: Array("geheim".utf8)))
        for other in ["", "geheiM", "Geheim", "geheim ", "gehei"] { #expect(secret != SecretBytes(utf8: other)) }
        #expect(SecretBytes(utf8: "") == SecretBytes(copying: []))
        #expect(secret.count == 6 && !secret.isEmpty && SecretBytes(utf8: "").isEmpty)
    }

    @Test("A secret does not appear in descriptions or dumps")
    func appearsNowhere() {
        struct Holder { var secret = SecretBytes(utf8: "geheim") }
        let secret = SecretBytes(utf8: "geheim")
        var text = "\(secret) \(String(reflecting: secret)) \(Holder()) \([secret]) \(Optional(secret) as Any)"
        dump(secret, to: &text)
        dump(Holder(), to: &text)
        print(secret, to: &text)
        #expect(Mirror(reflecting: secret).children.isEmpty)
        #expect(!text.contains("geheim") && !text.contains("103, 101") && text.contains("<secret>"))
    }

    @Test(
        "Only one line ending is trimmed from a secret",
        arguments: [
            ("", ""), ("\n", ""), ("\r\n", ""), ("a", "a"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n"),
            ("a\r", "a\r"), ("\na", "\na"), ("a \n", "a "), ("\r\r\n", "\r"),
        ])
    func takesOffOneLineEnding(text: String, trimmed: String) {
        #expect(SecretBytes(utf8: text).trimmingLineEnding() == SecretBytes(utf8: trimmed))
    }

    @Test("A secret may have any size", arguments: [0, 1, 4095, 4096, 4097, 100_000])
    func hasAnySize(count: Int) {
        let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0) }
        #expect(SecretBytes(copying: bytes).withUnsafeBytes { Array($0) } == bytes)
    }

    @Test func anErrorWhileFillingComesThrough() {
        struct Failure: Error {}
        #expect(throws: Failure.self) { try SecretBytes(count: 8) { _ throws(Failure) in throw Failure() } }
    }
}

@Suite struct SecretSourceTests {
    static let rows: [(String, SecretSource?)] = [
        ("prompt", .prompt), ("file:/a b:c", .file("/a b:c")), ("file:relative", .file("relative")),
        ("env:NAME", .environment("NAME")), ("fd:0", .fileDescriptor(0)), ("fd:3", .fileDescriptor(3)),
        ("systemd:name", .systemdCredential("name")), ("systemd:..name", .systemdCredential("..name")),
        ("", nil), ("Prompt", nil), ("prompt:", nil), ("file:", nil), ("file", nil), ("FILE:/a", nil), ("env:", nil),
        ("env:A=B", nil), ("fd:", nil), ("fd:-1", nil), ("fd:x", nil), ("fd:99999999999", nil), ("fd:1 ", nil),
        ("systemd:", nil), ("systemd:..", nil), ("systemd:.", nil), ("systemd:../x", nil), ("systemd:a/b", nil),
        ("file:a\0b", nil), ("s3cret", nil), ("pass:s3cret", nil), (":x", nil), (" file:/a", nil),
    ]

    /// A key in DER may end in a line feed. Text has no NUL.
    @Test(
        arguments: [([0x30, 0x00, 0x0a], [0x30, 0x00, 0x0a]), ([0x30, 0x01, 0x0a], [0x30, 0x01])]
            as [([UInt8], [UInt8])])
    func binarySecretsStayWhole(content: [UInt8], secret: [UInt8]) throws {
        let directory = try TemporaryDirectory()
        let path = try directory.write(content, to: "key", mode: 0o600)
        #expect(try SecretReader().read(.file(path)) == SecretBytes(copying: secret))
    }

    @Test("A secret source is parsed from its text, and malformed text is refused", arguments: rows)
    func parses(text: String, source: SecretSource?) {
        #expect(SecretSource(text) == source)
        if let source { #expect("\(source)" == text) }
    }

    @Test("Control characters in the description of a secret source are escaped")
    func itsDescriptionCannotSteerATerminal() throws {
        #expect("\(try #require(SecretSource("file:/a\u{1b}[2J")))" == "file:/a\\1b[2J")
    }
}

@Suite struct SecretReaderTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func error(_ source: SecretSource, _ variables: [String: String] = [:]) throws -> ProviderError {
        let result = Result { () throws(ProviderError) in
            try SecretReader { variables[$0] }.read(source)
        }
        guard case .failure(let error) = result else {
            Issue.record("\(source) was read")
            throw ProviderError(.internal, "nothing was thrown")
        }
        return error
    }

    @Test func readsAFile() throws {
        for mode in [0o600, 0o400, 0o700] as [UInt32] {
            let path = try directory.write(Array("geheim\r\n".utf8), to: "secret", mode: mode)
            #expect(try SecretReader().read(.file(path)) == SecretBytes(utf8: "geheim"))
            chmod(path, 0o600)
        }
    }

    @Test("A group of this process may read a secret file, such as Kubernetes' fsGroup, or one that root has chosen")
    func readsAFileOfAnOwnGroup() throws {
        for mode in [0o640, 0o440] as [UInt32] {
            let path = try directory.write(Array("geheim\n".utf8), to: "secret", mode: mode)
            #expect(try SecretReader().read(.file(path)) == SecretBytes(utf8: "geheim"))
            #expect(
                SecretReader().warning(about: .file(path))?.contains("every member of the group \(getegid())") == true)
            guard geteuid() == 0, chown(path, 0, 4711) == 0 else { continue }
            // Root decides who may read its files.
            #expect(try SecretReader().read(.file(path)) == SecretBytes(utf8: "geheim"))
            #expect(SecretReader().warning(about: .file(path))?.contains("every member of the group 4711") == true)
            chown(path, 0, getegid())
            chmod(path, 0o600)
        }
    }

    @Test(arguments: [0o644, 0o604, 0o660, 0o620, 0o601, 0o777] as [UInt32])
    func refusesAFileThatIsOpenToOthers(mode: UInt32) throws {
        let path = try directory.write(Array("geheim".utf8), to: "it's", mode: mode)
        let error = try error(.file(path))
        #expect(error.code == .configurationInvalid)
        #expect(error.message.contains("mode \(String(mode, radix: 8))"))
        #expect(error.message.contains("chmod 600 '\(directory.path)/it'\\''s'"))
    }

    @Test(
        "A secret file of another user is refused",
        .enabled(if: geteuid() == 0, "only root makes a file of another user"))
    func refusesAnothersFile() throws {
        let path = try directory.write([65], to: "secret")
        chown(path, 65534, 65534)
        let message = try error(.file(path)).message
        // It would be taken from the service whose secret it is.
        #expect(message.contains("belongs to another user (uid 65534)") && !message.contains("chown"), "\(message)")
    }

    @Test("A secret larger than 64 KiB is refused")
    func boundsTheSize() throws {
        let largest = [UInt8](repeating: 65, count: SecretReader.maximumSize)
        let path = try directory.write(largest, to: "secret")
        #expect(try SecretReader().read(.file(path)).count == largest.count)
        try directory.write(largest + [65], to: "secret")
        #expect(try error(.file(path)).message.contains("larger than 64 KiB"))
        #expect(try error(.systemdCredential("zero"), ["CREDENTIALS_DIRECTORY": "/dev"]).code == .configurationInvalid)
    }

    @Test("A missing file, a directory or a device is refused as a secret file")
    func whatIsNoFile() throws {
        #expect(try error(.file(directory["missing"])).code == .fileNotFound)
        #expect(try error(.file(directory.path)).message.contains("is a directory"))
        #expect(try error(.file("/dev/null")).message.contains("is a device"))
    }

    @Test func waitsForTheWriterOfAPipe() throws {
        let path = directory["pipe"]
        try #require(mkfifo(path, 0o600) == 0)
        // Opening for writing waits for the reader, which must not wait for the writer to open.
        DispatchQueue.global().async {
            let descriptor = open(path, O_WRONLY)
            _ = write(descriptor, "geheim\n", 7)
            close(descriptor)
        }
        #expect(try SecretReader().read(.file(path)) == SecretBytes(utf8: "geheim"))
    }

    @Test func readsADescriptorOnce() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0)
        defer { close(ends[0]) }
        #expect(write(ends[1], "geheim\n", 7) == 7)
        close(ends[1])
        let reader = SecretReader()
        for _ in 1...2 { #expect(try reader.read(.fileDescriptor(ends[0])) == SecretBytes(utf8: "geheim")) }
        #expect(try SecretReader().read(.fileDescriptor(ends[0])).isEmpty)
        #expect(try error(.fileDescriptor(1_000_000)).code == .configurationInvalid)
    }

    @Test("A close-on-exec file descriptor is refused and not read")
    func refusesADescriptorOfItsOwn() throws {
        var ends: [Int32] = [0, 0]
        try #require(pipe(&ends) == 0 && fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0)
        defer { for end in ends { close(end) } }
        #expect(write(ends[1], "theirs", 6) == 6)
        #expect(try error(.fileDescriptor(ends[0])).code == .configurationInvalid)
        // It still has its content.
        var bytes = [UInt8](repeating: 0, count: 6)
        #expect(read(ends[0], &bytes, 6) == 6)
    }

    @Test func twoThreadsGetTheSameFromADescriptor() throws {
        for _ in 1...20 {
            var ends: [Int32] = [0, 0]
            try #require(pipe(&ends) == 0)
            let input = ends[0]
            defer { close(input) }
            #expect(write(ends[1], "geheim\n", 7) == 7)
            close(ends[1])
            let reader = SecretReader()
            let secrets = Mutex<[SecretBytes?]>([])
            DispatchQueue.concurrentPerform(iterations: 2) { _ in
                let secret = try? reader.read(.fileDescriptor(input))
                secrets.withLock { $0.append(secret) }
            }
            #expect(secrets.withLock { $0 } == [SecretBytes(utf8: "geheim"), SecretBytes(utf8: "geheim")])
        }
    }

    @Test func readsTheEnvironment() throws {
        let reader = SecretReader { $0 == "SET" ? "geheim\n" : $0 == "EMPTY" ? "" : nil }
        #expect(try reader.read(.environment("SET")) == SecretBytes(utf8: "geheim\n"))
        #expect(try reader.read(.environment("EMPTY")).isEmpty)
        #expect(
            try error(.environment("UNSET")).message.contains(
                "env:UNSET cannot be read: the environment variable is not set"))
    }

    @Test func readsACredential() throws {
        // systemd's files have group bits that only reflect an access-control list.
        try directory.write(Array("geheim\n".utf8), to: "name", mode: 0o440)
        let reader = SecretReader { $0 == "CREDENTIALS_DIRECTORY" ? directory.path : nil }
        #expect(try reader.read(.systemdCredential("name")) == SecretBytes(utf8: "geheim"))
        #expect(reader.isCredential(directory["name"]) && reader.warning(about: .file(directory["name"])) == nil)
        for path in [directory.path, directory.path + "/", directory["a/b"], directory.path + "x/name", "name"] {
            #expect(!reader.isCredential(path), "\(path)")
        }
        chmod(directory["name"], 0o444)
        #expect(try reader.read(.file(directory["name"])) == SecretBytes(utf8: "geheim"))
        #expect(try error(.systemdCredential("name")).message.contains("LoadCredential=name:"))
        #expect(
            try error(.systemdCredential("name"), ["CREDENTIALS_DIRECTORY": "relative"]).code == .configurationInvalid)
        #expect(try error(.systemdCredential("other"), ["CREDENTIALS_DIRECTORY": directory.path]).code == .fileNotFound)
    }

    @Test func asksOnlyWherePromptIsTheSource() async throws {
        #expect(try error(.prompt).code == .interactionRequired)
        // A secret that no person is asked for may block, so it is read on the executor.
        let count = Mutex(0)
        var environment = ProviderEnvironment.testing(variables: ["X": "variable"])
        environment.executor = BlockingExecutor { job in
            count.withLock { $0 += 1 }
            job()
        }
        let answer = try await environment.secret(
            from: .prompt, prompt: "PIN", interaction: Person { "answer to \($0)" })
        #expect(answer == SecretBytes(utf8: "answer to PIN") && count.withLock { $0 } == 0)
        let variable = try await environment.secret(
            from: .environment("X"), prompt: "PIN", interaction: NoUserInteraction())
        #expect(variable == SecretBytes(utf8: "variable") && count.withLock { $0 } == 1)
    }
}
