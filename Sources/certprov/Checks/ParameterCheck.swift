import CertificateProviding
import CertificateTLS
import CertprovComposition
import FoundationEssentials
import Glibc
import IdentityStore
import Logon
import ProviderTransport

/// Checks the files, servers and key stores that the parameters of a provider or the settings of sections name: permissions,
/// content and reachability.
struct ParameterCheck {
    private let context: CommandContext
    private let registry: ProviderRegistry
    private let keyStores: KeyStores
    private let anchors: AnchorCheck
    private let declared: [ParameterDescriptor]
    private let texts: ProviderParameters
    /// `nil` for sections.
    private let provider: ProviderID?
    /// The words before the name of a parameter; empty for sections.
    private let prefix: String

    init(
        _ context: CommandContext, _ configured: ConfiguredProvider, _ configuration: LogonConfiguration,
        _ keyStores: KeyStores, _ anchors: AnchorCheck
    ) {
        (self.context, self.keyStores, self.anchors) = (context, keyStores, anchors)
        registry = configuration.pluginDirectory.map(context.registry.looking) ?? context.registry
        // An error of a plugin shows where it is made.
        declared = (try? registry.provider(configured.id, configured.parameters))?.parameters ?? []
        texts = configured.parameters
        (provider, prefix) = (configured.id, "\(configured.id) ")
    }

    /// Checks the settings of the sections that the program declares.
    init(
        sectionsOf configuration: LogonConfiguration, _ context: CommandContext, _ keyStores: KeyStores,
        _ anchors: AnchorCheck
    ) {
        (self.context, self.keyStores, self.anchors) = (context, keyStores, anchors)
        registry = context.registry
        declared = configuration.settings.declared
        texts = configuration.settings.texts
        (provider, prefix) = (nil, "")
    }

    func run() async -> [Finding] {
        var findings: [Finding?] = []
        for parameter in declared {
            guard let text = texts.string(parameter.name) else { continue }
            let what = prefix + parameter.name
            switch parameter.kind {
            case .secretSource: findings.append(SecretSource(text).flatMap { secret($0, what) })
            case .secretPath: findings.append(secretPath(text, what))
            // A section may name a directory that is made when it is needed.
            case .path where !prefix.isEmpty: findings.append(Self.path(text, what))
            // A key store's certificates are for the store to look at.
            case .certificate where isKeyStoreURI(text): break
            case .certificate: findings.append(Self.certificates(text, what))
            case .trustAnchors where text == "system": findings.append(.ok(what, "the system trust store"))
            case .certificateFile, .trustAnchors: findings += trustAnchors(text, what)
            case .pins: findings.append(Self.pins(text.split(separator: ",").map { String($0).trimmed }, what))
            case .serverURL: findings.append(await server(text, parameter.name, what))
            case .proxyURL: findings.append(port(text, what))
            case .keyStore: findings.append(await keyStore(text, parameter.name))
            default: break
            }
        }
        return findings.compactMap(\.self)
    }

    /// Checks that the store can be used as a renewal uses it: without a prompt.
    private func keyStore(_ uri: String, _ name: String) async -> Finding {
        let what = prefix + name
        do throws(ProviderError) {
            let pinSource = texts.string("\(name)-pin-source").flatMap { SecretSource($0) }
            let store = try keyStores.store(uri, pinSource: pinSource, parameter: name)
            try await store.check(NoUserInteraction())
            return .ok(what, "the key store answers")
        } catch {
            return .error(what, error)
        }
    }

    private func isKeyStoreURI(_ text: String) -> Bool {
        KeyStoreLocation(uri: text, pinSource: nil).map { location in
            (try? registry.keyStore(location.scheme)) != nil
        } ?? false
    }

    private func trustAnchors(_ path: String, _ what: String) -> [Finding] {
        do throws(ProviderError) { return anchors.run([(nil, try CertificateFile.read(path))], what) } catch {
            return [Self.failure(what, error)]
        }
    }

    /// The first certificate must be valid now, as for client authentication.
    private static func certificates(_ path: String, _ what: String) -> Finding {
        attempt(what) { () throws(ProviderError) in
            let certificates = try CertificateFile.read(path)
            if let leaf = certificates.first, leaf.status(at: Date()) != .valid {
                throw ProviderError(
                    .configurationInvalid,
                    "'\(leaf.subject)' is not valid now, but from \(leaf.notValidBefore.rfc3339) to "
                        + "\(leaf.notValidAfter.rfc3339); obtain another one.")
            }
            return certificates.count == 1 ? "one certificate" : "\(certificates.count) certificates"
        }
    }

    static func pins(_ list: [String], _ what: String) -> Finding {
        attempt(what) { () throws(ProviderError) in
            let pins = try list.map { text throws(ProviderError) in try CertificatePin.read(text) }
                .flatMap { $0 }
            return pins.count == 1 ? "one pin" : "\(pins.count) pins"
        }
    }

    /// Runs `body`, and reports its error with the code that the provider would use for the value.
    private static func attempt(_ what: String, _ body: () throws(ProviderError) -> String) -> Finding {
        do throws(ProviderError) { return .ok(what, try body()) } catch { return failure(what, error) }
    }

    static func failure(_ what: String, _ error: ProviderError) -> Finding {
        var error = error
        if error.code == .malformedData { error.code = .configurationInvalid }
        return .error(what, error)
    }

    /// Checks a server; `nil` for an invalid URL, which the provider itself reports, and behind a proxy that asks for a password.
    private func server(_ text: String, _ name: String, _ what: String) async -> Finding? {
        guard let server = ServerURL(text) else { return nil }
        let proxy = declared.first { $0.kind == .proxyURL }.flatMap { texts.string($0.name) }
        guard texts.string("proxy-username") == nil else { return nil }
        let proxies: ProxyChoice =
            if let proxy { HTTPProxy(proxy).map { .always($0) } ?? .direct } else { .environment(context.secrets) }
        return await ServerCheck(
            server: server, proxies: proxies, trust: serverTrust(name.hasPrefix("token-") ? "token-" : ""),
            isDirectory: provider.map { BuiltIns.isDirectory(name, of: $0) } ?? false
        ).run(what)
    }

    /// The trust in a server that the parameters configure; `nil` if they do not say, and for files that show elsewhere.
    ///
    /// - Parameter prefix: Of their names, beside those of ``ServerParameter``.
    private func serverTrust(_ prefix: String) -> ServerTrust? {
        let (anchors, pins) = (texts.string(prefix + "trust-anchors"), texts.string(prefix + "pin"))
        guard texts.string("ca-fingerprint") == nil || !prefix.isEmpty, anchors != nil || pins != nil,
            anchors.map({ $0 == "system" || (try? CertificateFile.read($0)) != nil }) != false,
            let pins = try? (pins ?? "").split(separator: ",").flatMap({ try CertificatePin.read(String($0).trimmed) })
        else { return nil }
        return ServerTrust(
            trustAnchors: anchors.map { $0 == "system" ? .system : .pemFile($0) } ?? .system, pins: pins,
            isPinOnly: texts.string(prefix + "pin-mode") == "pin-only")
    }

    /// Checks the port of a proxy; `nil` for an invalid URL, which the provider itself reports.
    private func port(_ text: String, _ what: String) -> Finding? {
        guard let url = URLComponents(string: text), let host = url.host, !host.isEmpty,
            let port = UInt16(exactly: url.port ?? (url.scheme?.lowercased() == "http" ? 80 : 443))
        else { return nil }
        let check = PortCheck(host: host, port: port)
        var finding = check.run()
        finding.what = "\(what) \(hostAndPort(check.host, port))"
        return finding
    }

    /// Checks that the secret can be read; `nil` for a prompt or a descriptor, which are not read.
    private func secret(_ source: SecretSource, _ what: String) -> Finding? {
        Self.secret(source, what, context.secrets)
    }

    /// As ``secret(_:_:)``, of a setting.
    static func secret(_ source: SecretSource, _ what: String, _ secrets: SecretReader) -> Finding? {
        switch source.kind {
        case .prompt, .fileDescriptor: return nil
        default: break
        }
        do throws(ProviderError) {
            _ = try secrets.read(source)
            if let warning = secrets.warning(about: source) { return .warning(what, warning) }
            return .ok(what, "\(source) can be read")
        } catch {
            return .error(what, error)
        }
    }

    private static func path(_ path: String, _ what: String) -> Finding? {
        guard access(path, F_OK) != 0 else { return nil }
        return .warning(what, "\(path.withVisibleControls): \(errorText(errno)).")
    }

    private func secretPath(_ path: String, _ what: String) -> Finding? {
        // The provider itself reports a missing or unreadable file.
        let open = keyFiles(at: path).filter { isReadableByEverybody($0) && !Self.hasNoKey($0) }
        guard let first = open.first else { return nil }
        let others = open.count > 1 ? " (and \(open.count - 1) more)" : ""
        return .warning(
            what,
            "\(first.withVisibleControls)\(others) can be read by all users of this host; "
                + first.stepToMode("o-r", inVolume: "0440"))
    }

    /// Whether a file has PEM, and no private key.
    private static func hasNoKey(_ path: String) -> Bool {
        guard let bytes = try? RegularFile.read(path, atMost: 1 << 20) else { return false }
        let text = String(decoding: bytes, as: UTF8.self)
        return text.contains("-----BEGIN ") && !text.contains("PRIVATE KEY-----")
    }

    /// The file itself, or the first 4096 files of a directory whose names have an extension of key files.
    private func keyFiles(at path: String) -> [String] {
        guard let names = try? FileManager.default.contentsOfDirectory(atPath: path) else { return [path] }
        let endings = [".p12", ".pfx", ".key", ".pem"]
        return names.filter { name in endings.contains { name.lowercased().hasSuffix($0) } }.sorted().prefix(4096)
            .map { "\(path)/\($0)" }
    }
}
