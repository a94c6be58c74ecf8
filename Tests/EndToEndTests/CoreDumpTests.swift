import Foundation
import Glibc
import TestSupport
import Testing

/// The command leaves no core dump, whatever the kernel does with them.
@Suite struct CoreDumpTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// The files of a process that leaves no core dump belong to root, since no other user may look at its memory.
    @Test func noOtherProcessMayLookAtTheMemory() throws {
        let user = geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups" : ""
        chmod(sandbox.path, 0o755)
        guard try sandbox.shell("\(user) \"$CERTPROV\" --version").status == 0 else {
            return print("CoreDumpTests: no other user can be had, so that a process is not dumpable is NOT TESTED.")
        }
        // A password that is never written makes the process wait.
        let process = try sandbox.start([
            "/bin/sh", "-c",
            """
            mkfifo "$HOME/pipe"; exec 3<>"$HOME/pipe"
            exec \(user) "$CERTPROV" list --provider pkcs12 --set path=$1 --set password-source=fd:3
            """, "sh", Fixtures.path("ec.p12"),
        ])
        defer {
            process.kill()
            _ = process.wait()
        }
        // While it is a shell of root's, its files are root's as well.
        func isCommand() -> Bool {
            let words = (try? contents("/proc/\(process.pid)/cmdline")) ?? []
            return words.starts(with: Array((BuiltCommand.path + "\0").utf8))
        }
        let deadline = ContinuousClock.now + .seconds(600)
        var owners: Set<uid_t> = []
        while !owners.contains(0) && ContinuousClock.now < deadline {
            guard isCommand(), let owner = status("/proc/\(process.pid)/mem")?.owner else { continue }
            owners.insert(owner)
        }
        #expect(owners.contains(0), "\(owners)")
    }
}
