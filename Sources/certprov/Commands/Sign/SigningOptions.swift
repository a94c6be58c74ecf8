import ArgumentParser
import CertificateProviding
import CertificateTLS
import Logon
import ProviderTransport
import Signing
import SigningRequests
import Terminal

/// The files to sign, and where the results go.
struct SignedFiles: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The files to sign. Default: stdin.", valueName: "file"), completion: .file())
    var inputs: [String] = []

    @Option(
        help: ArgumentHelp(
            "Write the result to this file. Default: stdout, unless that is a terminal.", valueName: "file"),
        completion: .file())
    var out: String?

    @Option(
        help: ArgumentHelp("Write the results into this directory, for several files.", valueName: "dir"),
        completion: .directory)
    var outDir: String?

    @Flag(help: "Replace files of --out and --out-dir that exist. An input is never replaced.")
    var force = false

    func check(_ options: GlobalOptions) throws {
        if out?.isEmpty == true { throw ValidationError("--out needs the name of a file.") }
        if outDir?.isEmpty == true { throw ValidationError("--out-dir needs the name of a directory.") }
        if out != nil, outDir != nil { throw ValidationError("Use one of --out and --out-dir.") }
        if inputs.contains("") { throw ValidationError("A file has an empty name.") }
        if inputs.count > 1, outDir == nil { throw ValidationError("Several files need --out-dir.") }
        if inputs.isEmpty, outDir != nil { throw ValidationError("--out-dir needs the names of files.") }
        if force, out == nil, outDir == nil { throw ValidationError("--force needs --out or --out-dir.") }
        if options.json, out == nil, outDir == nil {
            throw ValidationError("--json needs --out or --out-dir: stdout has the document.")
        }
    }
}

struct SchemeOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The scheme of the signature, by its name in TLS, such as rsa_pss_rsae_sha256. Default: that of the curve; for RSA, rsa_pkcs1_sha256.",
            valueName: "name"))
    var scheme: String?

    func validate() throws {
        if let scheme, SignatureScheme(scheme) == nil {
            throw ValidationError(
                "--scheme does not know '\(scheme.withVisibleControls)': use a name such as ecdsa_secp256r1_sha256 or rsa_pss_rsae_sha256."
            )
        }
    }

    var value: SignatureScheme? { scheme.flatMap { SignatureScheme($0) } }
}

struct TimeStampOptions: ParsableArguments {
    /// A level of EN 319 122-1 and EN 319 142-1.
    enum Level: String, ExpressibleByArgument, CaseIterable {
        case basic = "b-b"
        case timeStamped = "b-t"
        case longTerm = "b-lt"
    }

    @Option(
        help:
            "The level of the signature: b-b, b-t (with a time stamp), or b-lt (also with what verifies it when the servers of the CAs are gone). Default: b-t with a time-stamp server, else b-b."
    )
    var level: Level?

    @Option(
        name: .customLong("time-stamp"),
        help: ArgumentHelp(
            "Have this server stamp the signature with the time (RFC 3161), or none. Without the stamp, there is no signature. Default: Signing.time-stamp-url of the property file.",
            valueName: "url"))
    var url: String?

    @Option(
        name: .customLong("time-stamp-anchors"),
        help: ArgumentHelp("PEM file with the CA of the time stamps. Needed with --time-stamp.", valueName: "file"),
        completion: .file())
    var anchors: String?

    @Option(
        name: .customLong("time-stamp-policy"),
        help: ArgumentHelp("The policy to ask the server for: an object identifier.", valueName: "oid"))
    var policy: String?

    @Option(
        name: .customLong("time-stamp-server-anchors"),
        help: ArgumentHelp(
            "PEM file with the CA of an https: time-stamp server. Default: the system trust store.", valueName: "file"),
        completion: .file())
    var serverAnchors: String?

    @Option(
        name: .customLong("time-stamp-server-pin"),
        help: ArgumentHelp(
            "Pin of an https: time-stamp server: sha256/BASE64, or a certificate file.", valueName: "pin"))
    var serverPin: String?

    @Option(
        name: .customLong("time-stamp-user"),
        help: ArgumentHelp("User name for a time-stamp server that asks for one.", valueName: "name"))
    var user: String?

    @Option(
        name: .customLong("time-stamp-password-source"),
        help: ArgumentHelp(
            "The source of its password: file:PATH, env:NAME, fd:N or systemd:NAME.", valueName: "source"))
    var passwordSource: String?

    /// The first of the options that need a server.
    private var detail: String? {
        [
            ("time-stamp-anchors", anchors), ("time-stamp-policy", policy),
            ("time-stamp-server-anchors", serverAnchors),
            ("time-stamp-server-pin", serverPin), ("time-stamp-user", user),
            ("time-stamp-password-source", passwordSource), ("level", level == .basic ? nil : level?.rawValue),
        ].first { $0.1 != nil }?.0
    }

    func validate() throws {
        guard (user == nil) == (passwordSource == nil) else {
            throw ValidationError("--time-stamp-user and --time-stamp-password-source need each other.")
        }
        if let passwordSource, SecretSource(passwordSource) ?? .prompt == .prompt {
            throw ValidationError("--time-stamp-password-source must be file:PATH, env:NAME, fd:N or systemd:NAME.")
        }
        if level == .basic, detail != nil || url ?? RequestSettings.noTimeStamp != RequestSettings.noTimeStamp {
            throw ValidationError("--level b-b has no time stamp.")
        }
        guard let url else { return }
        if url == RequestSettings.noTimeStamp {
            if let detail { throw ValidationError("--\(detail) does not go with --time-stamp none.") }
            return
        }
        guard let server = ServerURL(url) else {
            throw ValidationError(
                "--time-stamp needs the URL of a server, http: or https:, without a user or a fragment; or none.")
        }
        guard anchors?.isEmpty == false else {
            throw ValidationError("--time-stamp needs --time-stamp-anchors: a PEM file with the CA of the time stamps.")
        }
        if !isFor(server) { throw ValidationError(Self.needsTLS) }
    }

    private static let needsTLS =
        "--time-stamp-server-anchors and --time-stamp-server-pin are for https: servers."

    /// Whether a server can be authenticated as the options say.
    private func isFor(_ server: ServerURL) -> Bool { server.isSecure || (serverAnchors == nil && serverPin == nil) }

    /// Returns the server, of these options or of the property file; `nil` without one.
    ///
    /// - Throws: `usage`, and errors of the files.
    func server(
        _ context: CommandContext, _ configuration: LogonConfiguration
    ) throws(ProviderError) -> TimeStampServer? {
        guard url != RequestSettings.noTimeStamp, level != .basic else { return nil }
        var server: TimeStampServer
        if let url, let anchors {
            server = try TimeStampServer(url, anchors: try CertificateFile.read(anchors))
        } else if configuration.path != nil,
            let configured = try TimeStampServer.configured(
                by: configuration.settings, context.timeStampEnvironment(), anchors: anchors)
        {
            server = configured
        } else if let detail {
            throw ProviderError(
                .usage, "--\(detail) needs --time-stamp, or Signing.time-stamp-url in the property file.")
        } else {
            return nil
        }
        if let policy { server.policy = policy }
        guard isFor(server.server) else { throw ProviderError(.usage, Self.needsTLS) }
        server.trust = ServerTrust(
            trustAnchors: try serverAnchors.map { path throws(ProviderError) in
                .certificates(try CertificateFile.read(path)).named(TrustAnchors.pemFile(path).name)
            } ?? .system,
            pins: try serverPin.map { text throws(ProviderError) in try CertificatePin.read(text) } ?? [])
        if let user, let source = passwordSource.flatMap({ SecretSource($0) }) {
            try server.logIn(as: user, passwordFrom: source, context.timeStampEnvironment())
        }
        server.proxy = .environment(context.secrets)
        return server
    }
}
