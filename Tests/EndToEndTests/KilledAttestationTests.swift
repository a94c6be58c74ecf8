import Foundation
import Glibc
import TestSupport
import Testing

/// The command is killed while a device proves what it is by its TPM, and its plugin with it. The resource manager takes what a
/// connection leaves that ends, as that of the kernel does.
@Suite(.enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(20))) struct KilledAttestationTests {
    private static let rounds = TestLength.rounds(6, full: 20, soak: 200)

    @Test("A kill at any moment leaves one order at most and an empty TPM, and the next run has the certificate")
    func whateverTheMoment() throws {
        let (sandbox, tpm) = (try Sandbox(), try SoftwareTPM())
        let server = try AttestationServer(listing: tpm)
        let manager = try ResourceManager(tpm)
        let plugin = try sandbox.installPlugin("tpm", "")
        try Subprocess.run(["install", "-m", "700", BuiltCommand.program("certprov-plugin-tpm"), plugin])
        let file = try sandbox.write(
            server.configuration + """
                PluginDirectory = \(sandbox.path)/plugins
                KeyStore.tpm.tcti = \(manager.tcti)
                KeyStore.tpm.environment = \(manager.bus.name)

                """, to: "device.properties")
        let (command, variables) = (
            [BuiltCommand.path, "fetch", "--force", "--config", file], [manager.bus.name: manager.bus.value]
        )
        var openOrders: Int { server.count("an order") - server.count("issued") - server.count("refused") }
        func complete() throws {
            try sandbox.run(command, with: variables).expect()
            #expect(openOrders == 0)
        }
        var kills = KillMoments(Self.rounds, within: .seconds(4))
        var completed = 0
        while kills.areLeft {
            _ = kills.kill(try sandbox.start(command, with: variables))
            #expect(openOrders <= 1)
            if kills.killed.isMultiple(of: 5) {
                try complete()
                completed += 1
            }
        }
        try complete()
        #expect(kills.haveLanded, "only \(kills.killed) were killed in time")
        // Each kill may have come after the server had issued, or certified, and before the answer was stored.
        #expect(server.count("issued") <= completed + 1 + kills.killed && server.count("refused") == 0)
        manager.kill()
        #expect(try tpm.leftovers().isEmpty)
    }
}
