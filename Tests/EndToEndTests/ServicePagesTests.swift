import Foundation
import Glibc
import TestSupport
import Testing

/// The book's pages about other projects' services: their blocks are used as they are, with the paths and the port of the test.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct ServicePagesTests {
    private let sandbox: Sandbox
    private var home: String { sandbox.path + "/home" }

    init() throws { sandbox = try Sandbox() }

    // MARK: - A TPM

    /// The setup of the page on tokens, but for the token.
    static let tokenSetup = """
        (umask 077; echo 123456 >pin)
        openssl req -x509 -newkey rsa:2048 -noenc -keyout ca.key -out ca.pem -days 2 -subj /CN=CA
        openssl req -newkey rsa:2048 -noenc -keyout server.key -out server.csr -subj /CN=localhost
        echo subjectAltName=DNS:localhost >server.ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 2 -extfile server.ext -out server.pem
        openssl s_server -www -accept 8443 -cert server.pem -key server.key -CAfile ca.pem -Verify 1 \\
            -verify_return_error >server.log 2>&1 & server=$!
        """

    @Test("A TPM becomes a token by the commands of the page, and its key makes a handshake")
    func tpm() throws {
        let page = try Page("Documentation/Tokens.md")
        // Its TPM, by a resource manager as the kernel has one; the page makes a token of its own.
        let host = try TokenHost(.tabrmd)
        var variables = host.variables.filter { $0.key != "TPM2_PKCS11_STORE" && $0.key != "LD_PRELOAD" }
        variables["TPM2_PKCS11_STORE"] = host.sandbox.path + "/home/tpm2_pkcs11"
        let typist = Page.root.appending(path: "Tests/TokenHosts/typist").path
        var setup = Self.tokenSetup
        for line in try #require(page.blocks("sh").first).components(separatedBy: "\n") where !line.hasPrefix("apt ") {
            let line = localisedModule(String(line).replacing("/var/lib/myservice", with: host.sandbox.path + "/home"))
            let answers = line.contains("--init-pin") ? "12345678 123456 123456" : "12345678 12345678"
            setup += line.hasPrefix("pkcs11-tool ") ? "\nexport M; \(typist) '\(line)' \(answers)" : "\n\(line)"
        }
        var steps = page.steps
        try #require(steps.removeFirst().command.hasPrefix("softhsm2-util ") && steps.count == 5)
        for index in steps.indices {
            steps[index].command.replace("/usr/lib/softhsm/libsofthsm2.so", with: "$M")
            // It is another model.
            if index < steps.count - 1 { steps[index].output = ["…"] }
        }
        try host.sandbox.expect(steps, after: setup, with: variables)
    }

    private func localisedModule(_ line: String) -> String {
        #if arch(arm64)
            line.replacing("x86_64-linux-gnu", with: "aarch64-linux-gnu")
        #else
            line
        #endif
    }
}

/// The events that systemd 252 gets for a path unit's `PathChanged=`: those of the link and of its target.
private final class LinkWatch {
    private let descriptor: Int32

    init(_ path: String) throws {
        descriptor = inotify_init1(Int32(IN_NONBLOCK) | Int32(IN_CLOEXEC))
        try #require(descriptor >= 0)
        let events = UInt32(
            IN_DELETE_SELF | IN_MOVE_SELF | IN_ATTRIB | IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM
                | IN_MOVED_TO)
        for mask in [events | UInt32(IN_DONT_FOLLOW), events] {
            try #require(inotify_add_watch(descriptor, path, mask) >= 0)
        }
    }

    deinit { close(descriptor) }

    /// How many bytes of events have come.
    func events() -> Int {
        var buffer = [UInt8](repeating: 0, count: 4096)
        return max(0, read(descriptor, &buffer, buffer.count))
    }
}
