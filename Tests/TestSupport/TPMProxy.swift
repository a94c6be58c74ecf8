import Foundation

/// Stands between a program and a TPM, as a transport of libtss2. It answers a command in the place of the TPM, or kills at one.
public final class TPMProxy: Sendable {
    /// Which process it kills: the plugin that uses the TPM, or the command that uses the plugin, by its launcher.
    public enum Victim: String, Sendable { case plugin, command }

    private let directory: TemporaryDirectory
    /// The parameter `tcti`.
    public let tcti: String

    /// Passes commands and responses on by tpm2_send. The process that uses the TPM starts it for each connection.
    private static let program = """
        import os, signal, struct, subprocess, sys
        # libtss2 leaves the other end of standard input open here, and a thread of Swift's may block the signal that ends this program.
        os.closerange(3, 1024)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        tcti, directory = sys.argv[1:]
        tpm = subprocess.Popen(["/usr/bin/tpm2_send", "-T", tcti], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        def message(stream):
            head = stream.read(10)
            if len(head) < 10: sys.exit()
            return head + stream.read(struct.unpack(">I", head[2:6])[0] - 10)
        def read(name):
            try: return open(os.path.join(directory, name)).read().split()
            except FileNotFoundError: return None
        def parent(process): return int(open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[1])
        while True:
            command = message(sys.stdin.buffer)
            code = struct.unpack(">I", command[6:10])[0]
            answer, kill = read("answer"), read("kill")
            if answer and int(answer[0]) == code:
                response = struct.pack(">HII", 0x8001, 10, int(answer[1]))
            else:
                tpm.stdin.write(command)
                tpm.stdin.flush()
                response = message(tpm.stdout)
            if kill and kill[1] == "1":
                os.unlink(os.path.join(directory, "kill"))
                plugin = os.getppid()
                os.kill(plugin if kill[0] == "plugin" else parent(parent(plugin)), signal.SIGKILL)
            elif kill:
                with open(os.path.join(directory, "kill"), "w") as file: file.write(f"{kill[0]} {int(kill[1]) - 1}")
            sys.stdout.buffer.write(response)
            sys.stdout.buffer.flush()
        """

    /// - Parameter target: The TPM.
    public init(_ target: String) throws {
        directory = try TemporaryDirectory()
        let program = try directory.write(Self.program.utf8, to: "proxy.py")
        tcti = "cmd:exec /usr/bin/python3 \(program) \(target) \(directory.path)"
    }

    /// Answers a command with a response code from now on. (TPM 2.0 Part 2, sections 6.5.2 and 6.6.)
    public func answer(_ command: UInt32, with code: UInt32) throws {
        try directory.write("\(command) \(code)".utf8, to: "answer")
    }

    /// Kills when the TPM has executed one of the next commands.
    ///
    /// - Parameter number: 1 for the next one.
    public func kill(_ victim: Victim, at number: Int) throws {
        try directory.write("\(victim.rawValue) \(number)".utf8, to: "kill")
    }

    /// Whether it has killed.
    public var hasKilled: Bool { access(directory["kill"], F_OK) != 0 }
}
