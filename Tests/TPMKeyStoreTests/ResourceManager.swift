import Foundation
import TestSupport

/// tpm2-abrmd, on a bus of its own, in front of a software TPM.
final class ResourceManager: Sendable {
    private let directory: TemporaryDirectory
    private let processes: [Subprocess]
    /// The variable by which its users find the bus.
    let bus: String
    let tcti = "tabrmd:bus_type=session"

    init(_ tpm: SoftwareTPM) throws {
        directory = try TemporaryDirectory()
        bus = "unix:path=\(directory["bus"])"
        let policy =
            "<policy context='default'><allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/></policy>"
        try directory.write(
            "<busconfig><type>session</type><listen>\(bus)</listen>\(policy)</busconfig>".utf8, to: "bus.conf")
        let variable = "DBUS_SESSION_BUS_ADDRESS=\(bus)"
        let daemon = try Subprocess(["dbus-daemon", "--config-file=\(directory["bus.conf"])", "--nofork"], .merged)
        func ask(_ text: String) throws -> Bool {
            let output = try Subprocess(
                [
                    variable, "dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/",
                    "org.freedesktop.DBus.NameHasOwner", "string:com.intel.tss2.Tabrmd",
                ], .captured()
            ).wait()
            return output.stdout.contains(text)
        }
        while try !ask("boolean"), !daemon.hasEnded { usleep(10_000) }
        let manager = try Subprocess(
            [variable, "tpm2-abrmd", "--session", "--allow-root", "--tcti=\(tpm.tcti)"], .merged)
        while try !ask("true"), !manager.hasEnded { usleep(10_000) }
        processes = [daemon, manager]
    }
}
