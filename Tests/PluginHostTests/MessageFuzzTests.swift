import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import Logging
import TestSupport
import Testing

@testable import PluginHost
@testable import PluginKit
@testable import PluginProtocol

/// Damaged messages, the same ones in every run, to both sides of the protocol. Each connection ends with a typed error or goes on;
/// no process traps.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(60))) struct MessageFuzzTests {
    /// Messages of a plugin to its host, and of a host to a plugin.
    private static let seeds: [String] = [
        #"{"id":1,"request":"prompt","params":{"for":1,"kind":"choice","text":"Which?","choices":["a","b"]}}"#,
        #"{"id":2,"request":"secret","params":{"source":"env:NAME"}}"#,
        #"{"id":3,"request":"record.write","params":{"name":"a","value":{"secret":"AAEC"},"version":"none"}}"#,
        #"{"id":4,"request":"record.read","params":{"name":"a"}}"#,
        #"{"id":5,"request":"entry.write","params":{"name":"a","entry":{"chain":["AAEC"],"privateKey":{"secret":"AAEC"}}}}"#,
        #"{"id":6,"request":"entry.remove","params":{"name":"a"}}"#,
        #"{"id":7,"request":"lease.take","params":{"name":"a"}}"#,
        #"{"id":8,"request":"lease.note","params":{"name":"a","unsettled":true}}"#,
        #"{"id":9,"request":"key.make","params":{"store":"store:","for":1,"type":"p256","label":"a","use":["sign"]}}"#,
        #"{"id":10,"request":"key.find","params":{"store":"store:","key":{"uri":"store:00","publicKey":"AAEC"}}}"#,
        #"{"id":11,"request":"key.sign","params":{"key":"store:00","scheme":"ed25519","message":"AAEC"}}"#,
        #"{"id":12,"request":"key.open","params":{"store":"store:","pinSource":"file:/a","parameter":"key"}}"#,
        #"{"notice":"progress","params":{"for":1,"text":"a","remaining":1.5}}"#,
        #"{"notice":"log","params":{"level":"info","message":"a","metadata":{"b":"c"}}}"#,
        #"{"notice":"updated"}"#, #"{"notice":"cancel","params":{"request":1}}"#,
        #"{"id":1,"result":{"version":1,"id":"zoo","provider":{"displayName":"a","summary":"b","parameters":[]}}}"#,
        #"{"id":2,"result":{"identity":{"chain":["AAEC"],"key":{"id":"a","publicKey":"AAEC","schemes":["ed25519"]}}}}"#,
        #"{"id":3,"error":{"code":"pending","message":"Later.","retryAfter":30}}"#,
        #"{"id":1,"request":"hello","params":{"versions":[1,2],"host":"certprov"}}"#,
        #"{"id":2,"request":"configure","params":{"parameters":{"a":"b"},"timeout":20}}"#,
        #"{"id":3,"request":"obtain","params":{"mayAsk":true}}"#, #"{"id":4,"request":"stored","params":{}}"#,
        #"{"id":5,"request":"discardReplaced","params":{"chain":["AAEC"],"mayAsk":false}}"#,
        #"{"id":6,"result":{"window":{"start":1767225600,"end":1767312000},"askAgain":60}}"#,
        #"{"id":6,"request":"key.storeChain","params":{"store":"store:","key":{"uri":"a","publicKey":"AA=="},"chain":["AA=="]}}"#,
        #"{"id":7,"request":"remember","params":{"for":1,"key":{"uri":"a","publicKey":"AAEC"}}}"#,
        #"{"id":8,"request":"shutdown"}"#,
    ]

    /// Lines that were changed at random, several for each connection.
    private func fuzz(_ seed: UInt64, _ side: (Int32, Int32) async throws -> ProviderError) async throws {
        var mutator = Mutator(seeds: Self.seeds.map { Array($0.utf8) }, seed: seed)
        var rounds = FuzzRounds(atLeast: 1500)
        while rounds.next() {
            var (toSide, fromSide): ([Int32], [Int32]) = ([-1, -1], [-1, -1])
            try #require(pipe(&toSide) == 0 && pipe(&fromSide) == 0)
            let (write, read) = (toSide[1], fromSide[0])
            let lines = (0..<8).map { _ in mutator.next().filter { $0 != 0x0a } + [0x0a] }
            let traces = lines.map { MessageTrace.text(of: $0) }
            #expect(traces.allSatisfy { !$0.isEmpty && $0.count < 2200 })
            // The side does not wait for its answers to be read: they fit into the pipe.
            for line in lines { _ = line.withUnsafeBytes { Glibc.write(write, $0.baseAddress, $0.count) } }
            close(write)
            let end = try await side(toSide[0], fromSide[1])
            #expect([.protocolError, .unavailable].contains(end.code), "\(end) after \(traces)")
            close(read)
        }
    }

    @Test func aHostReadsAnything() async throws {
        try await fuzz(41) { input, output in
            let services = HostServices(
                ProviderID("zoo"), .testing(), sources: [],
                stores: UsableKeyStores([:], in: .none, texts: [], sources: [])
            ) {}
            return await Side(services).serve(
                try MessageChannel(input: input, output: output, peer: "The plugin 'zoo'"))
        }
    }

    @Test func aPluginReadsAnything() async throws {
        let hello = Hello(
            version: 1, id: "zoo", pluginVersion: nil, provider: nil, keyStores: [], concurrency: 4, shutdown: true)
        try await fuzz(42) { input, output in
            let server = PluginServer(
                hello: hello, ScriptedProvider(ProviderID("zoo")).descriptor(), [SealedKeyStore.descriptor])
            return await server.serve(try MessageChannel(input: input, output: output, peer: "The host"))
        }
    }

    /// A host's side of a connection, with some requests that wait.
    private final class Side: PeerServices {
        private let services: HostServices
        private let end = AsyncStream<ProviderError>.makeStream()

        init(_ services: HostServices) { self.services = services }

        func serve(_ channel: MessageChannel) async -> ProviderError {
            let peer = Peer(channel, self)
            channel.send("hello", Hello.Request(versions: [1], host: "test"), .unlimited) { answer in
                _ = try? answer.get().result(as: Hello.self)
            }
            let waits = Task {
                let _: IdentityAnswer? = try? await peer.request(
                    "obtain", MayAsk(true), .unlimited, RequestContext(Person("answer")))
            }
            peer.start()
            for await error in end.stream {
                await waits.value
                return error
            }
            return ProviderError(.internal, "The connection has no end.")
        }

        func receive(_ request: IncomingRequest, from peer: Peer) { services.receive(request, from: peer) }
        func receive(notice name: String, _ message: Message, from peer: Peer) throws(ProviderError) {
            try services.receive(notice: name, message)
        }
        func ended(_ error: ProviderError) { end.continuation.yield(error) }
    }
}
