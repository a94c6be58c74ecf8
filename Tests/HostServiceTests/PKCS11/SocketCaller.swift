import NIOCore
import NIOPosix

@testable import HostService

/// A connection to the PKCS#11 socket.
final class SocketCaller: Sendable {
    let channel: NIOAsyncChannel<ByteBuffer, ByteBuffer>

    init(_ path: String) async throws {
        channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .connect(unixDomainSocketPath: path) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try NIOAsyncChannel(wrappingChannelSynchronously: channel)
                }
            }
    }

    /// Sends bytes; the rest are those that it gets until the connection ends.
    func exchange(_ bytes: [UInt8]) async throws -> [UInt8] {
        try await channel.executeThenClose { inbound, outbound in
            var received: [UInt8] = []
            // The other side may close the connection before it has read all.
            do {
                try await outbound.write(ByteBuffer(bytes: bytes))
                for try await buffer in inbound { received += buffer.readableBytesView }
            } catch is IOError {} catch is ChannelError {}
            return received
        }
    }

    /// Speaks with the token.
    func withDialogue<T>(version: UInt8 = 0, _ body: (TokenDialogue) async throws -> T) async throws -> T {
        try await channel.executeThenClose { inbound, outbound in
            var rest = inbound.makeAsyncIterator()
            var received: [UInt8] = []
            try await outbound.write(ByteBuffer(bytes: [version]))
            while received.isEmpty {
                guard let next = try await rest.next(isolation: #isolation) else { throw TokenDialogue.Ended() }
                received += next.readableBytesView
            }
            guard received.removeFirst() == min(version, 1) else { throw TokenDialogue.Ended() }
            var number: UInt32 = 0
            let dialogue = TokenDialogue { message in
                number += 1
                try await outbound.write(ByteBuffer(bytes: RPCFrame(number: number, body: message).bytes))
                while true {
                    if let frame = try RPCFrame.take(from: &received) {
                        return frame.number == number ? frame.body : nil
                    }
                    guard let next = try await rest.next(isolation: #isolation) else { return nil }
                    received += next.readableBytesView
                }
            }
            return try await body(dialogue)
        }
    }
}
