import Glibc
import TestSupport
import Testing

@testable import HostSockets

@Suite struct SocketPeerTests {
    @Test("The peer has the process, the user and the group that the kernel has, and a descriptor of its own")
    func peer() throws {
        let directory = try TemporaryDirectory()
        let path = directory["a.sock"]
        let socket = try ListeningSocket(at: path, setting: "--socket")
        let script = """
            import socket, sys
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(sys.argv[1])
            print("up", flush=True)
            sys.stdin.read()
            """
        let process = try Subprocess(["python3", "-c", script, path], .held)
        try #require(process.readLine() == "up")
        let connection = accept(socket.descriptor, nil, nil)
        defer { close(connection) }
        let peer = try #require(SocketPeer(of: connection))
        #expect(peer.process == process.pid && peer.user == geteuid() && peer.credentials.groups.contains(getegid()))
        process.kill()
        guard let descriptor = peer.descriptor else { return }
        var waiting = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        #expect(poll(&waiting, 1, 60_000) == 1)
        // Once more from the same connection: the process is gone.
        #expect(SocketPeer(of: connection)?.process == peer.process)
        #expect(SocketPeer(of: -1) == nil)
    }
}
