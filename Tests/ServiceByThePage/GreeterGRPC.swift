import CertprovKit
import GRPCCore
import GRPCNIOTransportHTTP2Posix
import Logging

/// `hello-grpc FILE PORT` greets each client by its subject; `hello-grpc FILE PORT call` is such a client.
@main struct Greeter: RegistrableRPCService {
    private static let greet = MethodDescriptor(fullyQualifiedService: "example.Greeter", method: "Greet")

    static func main() async throws {
        let logger = Logger(label: "hello") { StreamLogHandler.standardError(label: $0) }
        let (file, port) = (CommandLine.arguments[1], Int(CommandLine.arguments[2]) ?? 0)
        if CommandLine.arguments.count > 3 {
            try await call(configuredBy: file, port: port)
        } else {
            try await serve([Greeter()], configuredBy: file, port: port, logger: logger)
        }
    }

    func registerMethods<Transport: ServerTransport>(with router: inout RPCRouter<Transport>) {
        router.registerHandler(forMethod: Self.greet, deserializer: Text(), serializer: Text()) { _, context in
            let subject = try context.client()?.certificate.subject ?? "client"
            return StreamingServerResponse(single: ServerResponse(message: "Hello, \(subject)"))
        }
    }

    static func call(configuredBy file: String, port: Int) async throws {
        let tls = try await CertprovLogon(configuredBy: file).tls()
        var options = CallOptions.defaults
        options.timeout = .seconds(20)
        options.waitForReady = false
        try await withGRPCClient(transport: try makeTransport(to: "localhost", port: port, tls: tls)) { client in
            let greeting = try await client.unary(
                request: ClientRequest(message: ""), descriptor: greet, serializer: Text(), deserializer: Text(),
                options: options
            ) { try $0.message }
            print(greeting)
        }
    }
}

private struct Text: MessageSerializer, MessageDeserializer {
    func serialize<Bytes: GRPCContiguousBytes>(_ message: String) throws -> Bytes { Bytes(message.utf8) }

    func deserialize<Bytes: GRPCContiguousBytes>(_ bytes: Bytes) throws -> String {
        bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }
}
