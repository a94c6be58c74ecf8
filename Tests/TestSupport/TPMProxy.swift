import CertificateProviding
import Foundation

/// Stands between a program and a TPM, as a socket of a software TPM. It answers a command in the place of the TPM, or kills at one.
public final class TPMProxy: Sendable {
    /// Which process it kills: the plugin that uses the TPM, or the command that uses the plugin, by its launcher.
    public enum Victim: String, Sendable { case plugin, command }

    private let directory: TemporaryDirectory
    /// The parameter `tcti`.
    public let tcti: String

    private let process: Subprocess

    /// Serves the socket of a software TPM, and passes commands and responses on by tpm2_send.
    private static let program = """
        import os, signal, socket, struct, subprocess, sys, threading
        tcti, directory, path = sys.argv[1:]
        def message(stream):
            head = stream.read(10)
            return head + stream.read(struct.unpack(">I", head[2:6])[0] - 10) if len(head) == 10 else b""
        def read(name):
            try: return open(os.path.join(directory, name)).read().split()
            except FileNotFoundError: return None
        def parent(process): return int(open(f"/proc/{process}/stat").read().rsplit(")", 1)[1].split()[1])
        def listener(path):
            server = socket.socket(socket.AF_UNIX)
            server.bind(path)
            server.listen()
            return server
        # Each request of the control channel, such as that of a locality, succeeds.
        def control(server):
            while True:
                client = server.accept()[0]
                while client.recv(4096): client.sendall(bytes(4))
        def answer(plugin, command, tpm):
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
                os.kill(plugin if kill[0] == "plugin" else parent(parent(plugin)), signal.SIGKILL)
            elif kill:
                with open(os.path.join(directory, "kill"), "w") as file: file.write(f"{kill[0]} {int(kill[1]) - 1}")
            return response
        # libtss2 connects for each command, and a resource manager knows a process by its connection.
        senders, lock = {}, threading.Lock()
        def serve(client):
            plugin = struct.unpack("iII", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            stream = client.makefile("rb")
            with lock:
                tpm = senders.get(plugin) or subprocess.Popen(
                    ["/usr/bin/tpm2_send", "-T", tcti], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                senders[plugin] = tpm
                try:
                    while command := message(stream): client.sendall(answer(plugin, command, tpm))
                except OSError: pass
                client.close()
        commands, other = listener(path), listener(path + ".ctrl")
        threading.Thread(target=control, args=[other], daemon=True).start()
        print("ready", flush=True)
        while True: threading.Thread(target=serve, args=[commands.accept()[0]], daemon=True).start()
        """

    /// - Parameters:
    ///   - target: The TPM.
    ///   - variables: What reaches it needs these.
    public init(_ target: String, variables: [String: String] = [:]) throws {
        directory = try TemporaryDirectory()
        let program = try directory.write(Self.program.utf8, to: "proxy.py")
        tcti = "swtpm:path=\(directory["socket"])"
        process = try Subprocess(
            ["python3", program, target, directory.path, directory["socket"]],
            environment: ProcessInfo.processInfo.environment.merging(variables) { $1 })
        guard process.readLine() == "ready" else {
            throw ProviderError(.unavailable, "The proxy of the TPM does not start.")
        }
    }

    deinit { process.kill() }

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
