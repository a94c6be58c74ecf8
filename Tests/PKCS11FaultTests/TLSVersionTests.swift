import CP11Kit
import CertificateProviding
import CertificateTLS
import FaultyModuleControl
import NIOCore
import NIOPosix
import NIOSSL
import PKCS11TokenProvider
import TestSupport
import Testing

/// An RSA key on a token that knows neither PSS nor the raw operation.
@Suite(.timeLimit(.minutes(20))) struct TLSVersionTests {
    @Test(arguments: [false, true]) func aHandshakeIsOfTLS12(demandsTLS13: Bool) async throws {
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        module.control.set_mechanisms(0, [CKM_RSA_PKCS], 1)
        try module.add(FaultyModule.rsaIdentity.get(), to: 0)
        module.control.insert(0, 0)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let authority = try FaultyModule.authority.get()
        let anchors = TrustAnchors.certificates([authority.root])
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("localhost")), demandingClientCertificatesFrom: anchors)
        if demandsTLS13 { configuration.minimumTLSVersion = .tlsv13 }
        let context = try NIOSSLContext(configuration: configuration)
        let server = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        var probe = try ConnectionProbe(
            host: "localhost", port: server.localAddress?.port ?? 0, presenting: TLSCredentials(identity),
            trusting: anchors)
        probe.deadline = .seconds(600)
        let report = await Result { [probe] in try await probe.run() }
        try await server.close()
        switch report {
        case .success(let report): #expect(!demandsTLS13 && report.tlsVersion == .tlsv12)
        case .failure(let error):
            let error = try #require(error as? ProviderError)
            #expect(demandsTLS13 && error.code == .unsupportedAlgorithm, "\(error)")
        }
        #expect(module.calls("C_Sign") > (demandsTLS13 ? 0 : 1))
    }
}
