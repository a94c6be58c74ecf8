import TestSupport
import Testing

@Test("A reserved port is not reserved twice, and a server can listen on it")
func reservedPorts() throws {
    let ports = try (0..<200).map { _ in try ReservedPort() }
    #expect(Set(ports.map(\.number)).count == ports.count)
    let port = try #require(ports.first)
    let sandbox = try Sandbox()
    for (family, host) in [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")] {
        let listening = try sandbox.shell(
            """
            python3 -c '
            import socket, sys
            with socket.create_server(("", int(sys.argv[1])), family=socket.\(family)) as server:
                with socket.create_connection(("\(host)", int(sys.argv[1]))): print(server.getsockname()[1])
            ' "$1"
            """, port.description)
        #expect(listening.stdout == "\(port)\n", "\(listening)")
    }
}
