package import CertificateProviding
import CertificateTLS
package import Glibc
package import HostSockets
import IdentityFiles
package import Logon

/// One tunnel: the settings `Serve.tunnel.<number>.`
package struct TunnelSettings: Sendable, Equatable {
    package enum Mode: String, CaseIterable, Sendable {
        /// Takes TLS of peers, and passes their bytes to a local program.
        case server
        /// Takes bytes of local programs, and passes them to a peer by TLS.
        case client
    }

    package let number: Int
    package var mode: Mode
    package var listen: TunnelAddress
    package var target: TunnelAddress
    /// The name that the target's certificate must be valid for.
    package var serverName: String?
    /// The age at which a connection is closed; `nil` for any.
    package var maximumAge: Duration?
    package var isForAnyLocalUser: Bool
    /// Whether the target gets a header of the PROXY protocol, version 2.
    package var hasProxyHeader: Bool
    package var socketMode: mode_t
    package var socketGroup: gid_t?
    /// The time for a handshake, and for the connection to the target.
    package var connectTimeout: Duration
    package var maximumConnections: Int
}

// MARK: - The settings

extension TunnelSettings {
    private static func key(_ name: String) -> String { "Serve.tunnel.<number>.\(name)" }

    package static let mode = Parameter<Mode>.choice(
        key("mode"), default: nil,
        summary:
            "server: take mutual TLS, and pass the bytes to a local program. client: take the bytes of local programs, and pass them to "
            + "a server by mutual TLS.")
    package static let listen = Parameter<TunnelAddress>(
        key("listen"), .string, absent: nil,
        summary:
            "The address of the tunnel itself: HOST:PORT, [IPv6]:PORT, or unix:PATH. A client tunnel listens at a Unix socket, or on loopback."
    ) { text, _ throws(ParameterProblem) in try address(text) }
    package static let target = Parameter<TunnelAddress>(
        key("target"), .string, absent: nil,
        summary:
            "The address to connect to: of a server tunnel a Unix socket, or TCP on loopback; of a client tunnel the HOST:PORT of a server."
    ) { text, _ throws(ParameterProblem) in
        let target = try address(text)
        guard target.port != 0 else { throw .expected("must have a port from 1 to 65535") }
        return target
    }
    package static let serverName = Parameter<String?>(
        key("server-name"), .string, defaultValue: "the host of the target",
        summary: "The DNS name or IP address that the target's certificate must be valid for, of a client tunnel."
    ) { text, _ throws(ParameterProblem) in try word(text) }
    package static let maximumAge = Parameter<Duration?>(
        key("max-age"), .string, defaultValue: "any age",
        summary: "The age in seconds, from 1 to 31536000, at which the tunnel closes a connection."
    ) { text, _ throws(ParameterProblem) in
        guard let seconds = Int(text), (1...31_536_000).contains(seconds) else {
            throw .expected("must be a number of seconds from 1 to 31536000")
        }
        return .seconds(seconds)
    }
    package static let anyLocalUser = Parameter.flag(
        key("any-local-user"),
        summary:
            "Whether a client tunnel may listen at a TCP port, which every user of this host, and every container with its network, can "
            + "use as this identity.")
    package static let proxyProtocol = Parameter<Bool>(
        key("proxy-protocol"), .string, absent: false, defaultValue: "none",
        summary:
            "v2: the target of a server tunnel, a Unix socket, gets the peer's address and names (PROXY protocol, version 2)."
    ) { text, _ throws(ParameterProblem) in
        guard text == "v2" else { throw .expected("must be v2; remove the line for none") }
        return true
    }
    package static let socketMode = Parameter<mode_t>(
        key("socket-mode"), .string, absent: 0o666, defaultValue: "0666",
        summary: "Mode of a client tunnel's Unix socket: 0666, 0660 or 0600. A caller needs a grant besides."
    ) { text, _ throws(ParameterProblem) in
        guard ["0600", "0660", "0666"].contains(text), let mode = mode_t(text, radix: 8) else {
            throw .expected("must be 0666, 0660 or 0600")
        }
        return mode
    }
    package static let socketGroup = Parameter<String?>(
        key("socket-group"), .string, defaultValue: "the group of the service",
        summary: "Group of a client tunnel's Unix socket, for the mode 0660."
    ) { text, _ throws(ParameterProblem) in try word(text) }
    package static let connectTimeout = Parameter.seconds(
        key("connect-timeout"), default: 10, in: 1...600,
        summary: "Seconds for a TLS handshake, and for the connection to the target.")
    package static let maximumConnections = Parameter<Int>(
        key("max-connections"), .init(rawValue: "number"), absent: 10_000, defaultValue: "10000",
        summary:
            "Connections at one time, from 1 to 1000000; further ones are closed. One local user may have half of them."
    ) { text, _ throws(ParameterProblem) in
        guard let number = Int(text), (1...1_000_000).contains(number) else {
            throw .expected("must be a number from 1 to 1000000")
        }
        return number
    }

    static let parameters = [
        mode.descriptor, listen.descriptor, target.descriptor, serverName.descriptor, maximumAge.descriptor,
        anyLocalUser.descriptor, proxyProtocol.descriptor, socketMode.descriptor, socketGroup.descriptor,
        connectTimeout.descriptor, maximumConnections.descriptor,
    ]

    private static func word(_ text: String) throws(ParameterProblem) -> String {
        guard !text.isEmpty, !text.contains(where: \.isWhitespace) else { throw .expected("must be one word") }
        return text
    }

    private static func address(_ text: String) throws(ParameterProblem) -> TunnelAddress {
        guard let address = TunnelAddress(text) else { throw .expected(TunnelAddress.expectation) }
        return address
    }

    /// Reads one tunnel, and checks that its settings fit each other. Blocks on the database of groups.
    ///
    /// - Throws: `configurationInvalid`, with file and line.
    package init(_ number: Int, _ settings: Parameters) throws(ProviderError) {
        self.number = number
        mode = settings[Self.mode.of(number)]
        listen = settings[Self.listen.of(number)]
        target = settings[Self.target.of(number)]
        serverName = settings[Self.serverName.of(number)]
        maximumAge = settings[Self.maximumAge.of(number)]
        isForAnyLocalUser = settings[Self.anyLocalUser.of(number)]
        hasProxyHeader = settings[Self.proxyProtocol.of(number)]
        socketMode = settings[Self.socketMode.of(number)]
        connectTimeout = settings[Self.connectTimeout.of(number)]
        maximumConnections = settings[Self.maximumConnections.of(number)]
        func invalid(_ setting: Parameter<some Sendable>, _ reason: String) -> ProviderError {
            settings.invalid(setting.of(number), reason)
        }
        if let group = settings[Self.socketGroup.of(number)] {
            guard let id = FilePermissions.group(group) else {
                throw invalid(Self.socketGroup, "names a group that this host does not have")
            }
            socketGroup = id
        }
        func refuse(
            _ setting: Parameter<some Sendable>, if isWrong: Bool, _ reason: String
        ) throws(ProviderError) {
            if isWrong, settings.isGiven(setting.of(number)) { throw invalid(setting, reason) }
        }
        let isClient = mode == .client
        if isClient {
            guard listen.isLocal else {
                throw invalid(
                    Self.listen,
                    "must be a Unix socket, or on loopback: other hosts would use the identity of this one through a client tunnel"
                )
            }
            guard listen.isUnix || isForAnyLocalUser else {
                throw invalid(
                    Self.listen,
                    "is a port that every user of this host can use as this identity; use unix:PATH with grants, or set "
                        + Self.anyLocalUser.of(number).name + " = true")
            }
            guard !target.isUnix else {
                throw invalid(Self.target, "of a client tunnel must be the HOST:PORT of a server")
            }
        } else {
            guard !listen.isUnix else { throw invalid(Self.listen, "of a server tunnel must be HOST:PORT") }
            guard target.isLocal else {
                throw invalid(
                    Self.target,
                    "of a server tunnel must be a Unix socket, or on loopback: the bytes leave the tunnel without TLS")
            }
        }
        guard !listen.covers(target) else {
            throw invalid(Self.target, "is the tunnel's own address; name that of the program behind it")
        }
        try refuse(
            Self.anyLocalUser, if: !isClient || listen.isUnix,
            "is for a client tunnel that listens at a TCP port; remove it")
        try refuse(
            Self.proxyProtocol, if: isClient || !target.isUnix,
            "is for a server tunnel to a Unix socket: at a port, every local user could forge the header")
        try refuse(Self.serverName, if: !isClient, "is for a client tunnel; remove it")
        try refuse(Self.socketMode, if: !listen.isUnix, "is for a client tunnel at a Unix socket; remove it")
        try refuse(Self.socketGroup, if: !listen.isUnix, "is for a client tunnel at a Unix socket; remove it")
    }

    /// Checks what a tunnel needs of the rest of the property file: peers, trust anchors, and grants.
    ///
    /// - Parameter settings: Those that the tunnel was read of.
    /// - Throws: `configurationInvalid`, with file and line.
    package func check(_ configuration: LogonConfiguration, _ grants: Grants, _ settings: Parameters)
        throws(ProviderError)
    {
        let listen = Self.listen.of(number)
        switch mode {
        case .server:
            guard configuration.settings.isGiven(PeerTrust.allowed) else {
                throw settings.invalid(
                    listen,
                    "is of a server tunnel, which needs Peers.allow: without it, every certificate of the CA would reach the program "
                        + "behind the tunnel; name the peers, or write Peers.allow = any")
            }
            let trust = PeerTrust(trustAnchors: configuration.trustAnchors, configuration.settings)
            guard configuration.trustAnchors != nil || trust.peers.isPinOnly else {
                throw settings.invalid(
                    listen,
                    "is of a server tunnel, which needs TrustAnchors: the system trust store would admit the clients of every public CA"
                )
            }
        case .client:
            guard !self.listen.isUnix || !grants.grants.isEmpty else {
                throw settings.invalid(
                    listen,
                    "is a client tunnel's socket, which no caller may use without a grant; set Serve.allow.1, such as user:NAME"
                )
            }
        }
    }
}
