import CertificateProviding
import Glibc
import HostSockets
import Logging
import NIOCore

/// The sockets of the service for other programs: made by their settings, or passed by the service manager.
struct ServiceSockets: Sendable {
    /// `nil` without a setting and without one that is passed.
    let pkcs11: PKCS11Socket?
    let credentials: CredentialSocket?
    /// The settings that hold until the end of the process.
    private let pkcs11Path, credentialPath: String?

    /// Makes the sockets. Nothing is answered yet.
    ///
    /// - Parameters:
    ///   - served: Returns the identities that there are now.
    ///   - named: Returns the identity of a name, or why there is none now.
    /// - Throws: `configurationInvalid` for a place that another user can change; errors of the system.
    init(
        _ configuration: HostConfiguration, logger: Logger, served: @escaping @Sendable () -> [ServedIdentity],
        named: @escaping @Sendable (String) -> Result<ServedIdentity, Grants.Refusal>
    ) throws(ProviderError) {
        (pkcs11Path, credentialPath) = (configuration.pkcs11Socket, configuration.credentialSocket)
        let passed = try ServiceManager.sockets()
        func listening(
            _ name: String, at path: String?, setting: String, mode: mode_t
        ) throws(ProviderError) -> [ListeningSocket] {
            let sockets = passed.filter { $0.name == name }.map(\.socket)
            guard sockets.isEmpty, let path else { return sockets }
            try Self.requireTrusted(path, setting: setting)
            return [try ListeningSocket(at: path, setting: setting, mode: mode)]
        }
        let tokens = try listening(
            PKCS11Socket.name, at: pkcs11Path, setting: HostConfiguration.pkcs11.name, mode: 0o666)
        pkcs11 = tokens.isEmpty ? nil : PKCS11Socket(tokens, served: served, logger: logger)
        let claims = try listening(
            CredentialSocket.name, at: credentialPath, setting: HostConfiguration.credentials.name, mode: 0o600)
        credentials = claims.isEmpty ? nil : CredentialSocket(claims, logger: logger, source: named)
    }

    /// Checks that no other user can put a socket of its own in the place of one: programs would take its token for this one.
    private static func requireTrusted(_ path: String, setting: String) throws(ProviderError) {
        let directory = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
        do throws(TrustedPath.Refusal) { _ = try TrustedPath.check(directory + "/", .directory) } catch {
            throw ProviderError(
                .configurationInvalid,
                "The socket \(path.withVisibleControls) is not made: \(error.reason.withVisibleControls); or name another path with "
                    + "\(setting).")
        }
    }

    /// The error if a configuration that is read again has another socket.
    func change(to configuration: HostConfiguration) -> ProviderError? {
        let setting =
            configuration.pkcs11Socket != pkcs11Path
            ? HostConfiguration.pkcs11.name
            : configuration.credentialSocket != credentialPath ? HostConfiguration.credentials.name : nil
        return setting.map { setting in
            ProviderError(
                .configurationInvalid,
                "\(setting) has changed: the socket stays in its place until the service starts anew; run: "
                    + "systemctl restart certprov-serve")
        }
    }

    func start(on group: any EventLoopGroup) async throws {
        try await pkcs11?.start(on: group)
        try await credentials?.start(on: group)
    }

    func stop() async {
        await pkcs11?.stop()
        await credentials?.stop()
    }

    /// For the end of the process.
    func removeFiles() {
        pkcs11?.removeFiles()
        credentials?.removeFiles()
    }

    var status: [HostStatus.Socket] {
        pkcs11.map { [.init(name: PKCS11Socket.name, connections: $0.connections)] } ?? []
    }
}
