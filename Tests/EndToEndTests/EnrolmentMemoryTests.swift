import TestSupport
import Testing

/// Answers that have no end, or come a byte at a time: the command needs no more memory for them than for others.
@Suite struct EnrolmentMemoryTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Enrols, and measures.
    /// - Returns: The exit status, and the most memory that was in use, in KiB.
    private func fetch(from server: ESTServer, label: String, timeout: Int) throws -> (status: Int32?, peak: Int) {
        let settings = [
            "protocol=est", "url=https://localhost:\(server.port)/\(label)",
            "trust-anchors=\(server.directory["ca.pem"])", "subject=CN=host,O=Example", "timeout=\(timeout)",
        ]
        // Of a process that is smaller than the command: the memory of a program's parent counts for it as well.
        let measure = """
            import resource, subprocess, sys
            status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
            print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
            sys.exit(status)
            """
        let output = try sandbox.run(
            ["/usr/bin/python3", "-c", measure, BuiltCommand.path, "fetch", "--provider", "mdm"]
                + settings.flatMap { ["--set", $0] })
        return (output.status, try #require(Int(output.stdout.dropLast()), "\(output)"))
    }

    @Test("An endless answer of an enrolment server does not fill the memory")
    func whatNeverEndsIsNotKept() async throws {
        let server = try await ESTServer.start("--binding", "required")
        let ordinary = try fetch(from: server, label: "", timeout: 600)
        #expect(ordinary.status == 0)
        for operation in ["cacerts-", "csrattrs-", ""] {
            for fault in ["endless", "endless-length", "headers-endless", "drip-100"] {
                let endless = try fetch(from: server, label: "fault-\(operation)\(fault)", timeout: 3)
                #expect(endless.status != 0, "\(operation)\(fault)")
                let growth = endless.peak - ordinary.peak
                #expect(growth < 12 << 10, "\(operation)\(fault): \(growth) KiB")
            }
        }
        #expect(server.issued > 0)
    }
}
