import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

/// The command is killed while it enrols over ACME and while it renews, with Debian's `pebble`: fifty times, and more in `make soak`.
@Suite(.enabled(if: Pebble.isInstalled, "pebble is not installed"), .enabled(if: !BuiltCommand.isPlugged))
struct KilledACMETests {
    private static let rounds = TestLength.rounds(10, full: 25, soak: 250)

    @Test(
        "A kill at any moment leaves at most one order open, no second certificate, and no listener",
        arguments: [false, true])
    func whateverTheMomentOneOrderIsOpen(isRenewal: Bool) async throws {
        let port = try ReservedPort()
        let other = try ReservedPort()
        let server = try await Pebble.start(
            .init(validation: .ports(http: port.number, tls: other.number), refusedNonces: 20))
        let sandbox = try Sandbox()
        let command =
            [
                BuiltCommand.path, "fetch", "--provider", "acme",
                "--set", "directory=\(server.directoryURL)", "--set", "trust-anchors=\(server.serverCA)",
                "--set", "agree-terms=true", "--set", "identifiers=dns:host.example",
                "--set", "http-listen=127.0.0.1:\(port)", "--set", "usage=server",
            ] + (isRenewal ? ["--force"] : [])
        let storage = IdentityStore(path: sandbox.store).storage(for: ProviderID("acme"))
        /// One that is not to be renewed goes when it has arrived.
        func deleteUnlessRenewed() throws {
            guard !isRenewal, try !storage.entryNames().isEmpty else { return }
            try sandbox.certprov(["delete", "--yes"] + command[2...]).expect()
        }
        func complete() throws {
            let output = try sandbox.run(command)
            #expect(output.status == 0, "\(output)\n\(server.log.suffix(3000))")
            try deleteUnlessRenewed()
        }
        let start = ContinuousClock.now
        try complete()
        var kills = KillMoments(Self.rounds, within: ContinuousClock.now - start)
        var completed = 1
        while kills.areLeft {
            _ = kills.kill(try sandbox.start(command))
            #expect(Orders(server.log).open <= 1, "\(server.log.suffix(3000))")
            try deleteUnlessRenewed()
            if kills.killed.isMultiple(of: 5) {
                try complete()
                completed += 1
                #expect(Orders(server.log).open == 0)
            }
        }
        try complete()
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        let orders = Orders(server.log)
        #expect(orders.open == 0)
        // Each kill may have come after the server had issued, and before the answer was stored.
        #expect(orders.issued <= completed + 1 + kills.killed)
    }

    /// The orders that the server's log tells of.
    private struct Orders {
        private(set) var open = 0
        private(set) var issued = 0

        init(_ log: String) {
            var (added, failed, ended) = (0, Set<Substring>(), Set<Substring>())
            for line in log.split(separator: "\n") {
                if line.contains("Added order ") { added += 1 }
                if line.contains("Issued certificate serial "), let order = line.split(separator: " ").last {
                    issued += 1
                    ended.insert(order)
                }
                // An authorisation that has failed ends its order, which has one. There is a line for each of them.
                if let range = line.range(of: " set INVALID by invalid authz"),
                    let one = line[..<range.lowerBound].split(separator: " ").last
                {
                    failed.insert(one)
                }
            }
            open = added - ended.count - failed.count
        }
    }
}
