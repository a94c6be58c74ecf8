import Foundation

/// tpm2-abrmd, on a bus of its own, in front of a software TPM.
public final class ResourceManager: Sendable {
    private let directory: TemporaryDirectory
    private let processes: [Subprocess]
    /// The variable by which its users find the bus.
    public let bus: (name: String, value: String)
    public let tcti = "tabrmd:bus_type=session"

    public init(_ tpm: SoftwareTPM) throws {
        directory = try TemporaryDirectory()
        bus = ("DBUS_SESSION_BUS_ADDRESS", "unix:path=\(directory["bus"])")
        let policy =
            "<policy context='default'><allow send_destination='*'/><allow receive_sender='*'/><allow own='*'/></policy>"
        try directory.write(
            "<busconfig><type>session</type><listen>\(bus.value)</listen>\(policy)</busconfig>".utf8, to: "bus.conf")
        let variable = "\(bus.name)=\(bus.value)"
        let daemon = try Subprocess(["dbus-daemon", "--config-file=\(directory["bus.conf"])", "--nofork"], .captured())
        func ask(_ text: String) throws -> Bool {
            let output = try Subprocess(
                [
                    variable, "dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/",
                    "org.freedesktop.DBus.NameHasOwner", "string:com.intel.tss2.Tabrmd",
                ], .captured()
            ).wait()
            return output.stdout.contains(text)
        }
        try daemon.wait(for: "dbus-daemon") { try ask("boolean") }
        let manager = try Subprocess(
            [variable, "tpm2-abrmd", "--session", "--allow-root", "--tcti=\(tpm.tcti)"], .captured())
        processes = [daemon, manager]
        try manager.wait(for: "tpm2-abrmd") { try ask("true") }
    }

    // It does not listen to SIGTERM once its bus is gone.
    deinit { kill() }

    /// Ends it at once, so that the TPM takes other connections.
    public func kill() {
        for process in processes {
            process.kill()
            process.wait()
        }
    }
}
