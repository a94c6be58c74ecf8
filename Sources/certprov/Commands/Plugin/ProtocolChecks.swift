import CertificateProviderTesting
import CertificateProviding
import PluginHost
import PluginProtocol

/// The checks of how a plugin speaks. The host checks its description.
struct ProtocolChecks {
    let id: ProviderID
    let host: PluginHost
    let parameters: ProviderParameters

    private var variables: [String] {
        (parameters.string("environment") ?? "").split(separator: ",").map(String.init)
    }
    private var timeout: Duration {
        .seconds(parameters.string("timeout").flatMap { Int($0) }.map { max(1, min($0, 300)) } ?? 20)
    }

    private struct Greeting: Encodable {
        var versions = Hello.versions
        var host = "certprov"
        /// Unknown ones, which plugins ignore.
        var future: [String: [Int]]?
    }
    private struct Cancel: Encodable { let request: UInt64 }

    /// Runs all checks.
    ///
    /// - Returns: Whether the plugin can be used for further ones.
    func run(_ report: inout ConformanceReport) async -> Bool {
        var isUsable = false
        await report.check("hello", "A plugin answers 'hello' with a description of itself.") {
            _ = try host.describe(id, parameters)
            isUsable = true
            try hasKnownTypes(try await hello(Greeting()))
        }
        guard isUsable else { return false }
        await report.check("version", "A plugin answers with the highest version that both sides know.") {
            let hello = try await hello(Greeting(versions: Hello.versions + [4096]))
            try require(
                Hello.versions.contains(hello.version), "It answers with version \(hello.version), which no side knows."
            )
        }
        var answersShutdown = false
        await report.check("unknownFields", "A plugin ignores fields that it does not know.") {
            answersShutdown = try await hello(Greeting(future: ["field": [1, 2]])).shutdown == true
        }
        await report.check(
            "unknownRequest", "A plugin answers a request that it does not know with the code 'unsupported'."
        ) {
            try await withSession { peer in
                try await greet(peer)
                try await refusesUnknown(peer)
            }
        }
        await report.check("unknownNotice", "A plugin ignores a notice that it does not know, and goes on.") {
            try await withSession { peer in
                try await greet(peer)
                peer.channel.notify("x-certprov-verify", Greeting())
                peer.channel.notify("cancel", Cancel(request: 4096))
                try await refusesUnknown(peer)
            }
        }
        if answersShutdown {
            await report.check(
                "shutdown", "A plugin whose description has 'shutdown' answers that request within two seconds."
            ) {
                try await withSession { peer in
                    try await greet(peer)
                    do throws(ProviderError) {
                        let _: Nothing = try await peer.request("shutdown", Nothing(), .total(MessageChannel.grace))
                    } catch {
                        guard error.code == .timedOut else { throw error }
                        throw Failure(reason: "It does not answer 'shutdown' within two seconds.")
                    }
                }
            }
        }
        await report.check("end", "A plugin ends within two seconds when its standard input ends.") {
            let session = try host.session(id, variables: variables)
            try await greet(session.peer)
            let hasEnded = await session.end()
            try require(hasEnded, "It runs on, until SIGTERM or SIGKILL.")
        }
        return true
    }

    private func withSession(_ body: (Peer) async throws -> Void) async throws {
        let session = try host.session(id, variables: variables)
        do { try await body(session.peer) } catch {
            _ = await session.end()
            throw error
        }
        _ = await session.end()
    }

    private func hello(_ greeting: Greeting) async throws -> Hello {
        var hello: Hello?
        try await withSession { hello = try await $0.request("hello", greeting, .total(timeout)) }
        return try require(hello, "It does not answer.")
    }

    /// The host takes a parameter of another type for one of a later version, and checks none of its values.
    private func hasKnownTypes(_ hello: Hello) throws {
        let known = ParameterDescriptor.Kind.known.map(\.rawValue)
        let parameters = (hello.provider?.parameters ?? []) + (hello.keyStores ?? []).flatMap { $0.parameters ?? [] }
        for parameter in parameters where !known.contains(parameter.type) {
            throw Failure(
                reason: "The parameter '\(parameter.name.withVisibleControls)' has the unknown type "
                    + "'\(parameter.type.withVisibleControls)'; the types are \(known.joined(separator: ", ")).")
        }
    }

    private func greet(_ peer: Peer) async throws {
        let _: Hello = try await peer.request("hello", Greeting(), .total(timeout))
    }

    private func refusesUnknown(_ peer: Peer) async throws {
        do throws(ProviderError) {
            let _: Nothing = try await peer.request("x-certprov-verify", Greeting(), .total(timeout))
        } catch {
            return try require(
                error.code == .unsupportedRequest,
                "It answers an unknown request with the code \(error.code): \(error.message)")
        }
        throw Failure(reason: "It answers an unknown request with a result.")
    }
}
