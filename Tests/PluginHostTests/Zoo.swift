import CertificateProviding
import Foundation
import Glibc
import PluginHost
import TestSupport
import Testing

/// A directory with the plugin `zoo`, and what it needs to be a provider.
final class Zoo: Sendable {
    static let id = ProviderID("zoo")
    static let authority = Result { try TestAuthority() }

    let directory: TemporaryDirectory
    let identity: Identity
    let host: PluginHost

    /// - Parameter behaviour: What it does wrong; see `zoo.py`.
    init(_ behaviour: String = "none") throws {
        directory = try TemporaryDirectory()
        let authority = try Self.authority.get()
        identity = try authority.issue("zoo")
        let key = try #require(identity.key.exporter).pkcs8Representation()
        try directory.write(identity.certificate.derRepresentation, to: "leaf.der")
        try directory.write(authority.intermediate.derRepresentation, to: "issuer.der")
        try directory.write(authority.issue("stranger").certificate.derRepresentation, to: "stranger.der")
        try directory.write(
            authority.renew(identity, as: "other", notBefore: Date(timeIntervalSinceNow: -60)).derRepresentation,
            to: "other.der")
        try directory.write(identity.key.publicKey.derRepresentation, to: "spki.der")
        try directory.write(key.withUnsafeBytes { Array($0) }, to: "key.der")
        try Subprocess.openssl("pkey", "-in", "key.der", "-out", "key.pem", in: directory.path)
        try directory.write(Array("from a file\n".utf8), to: "password")
        try Self.write(behaviour, to: directory)
        host = Self.host(directory)
    }

    static func write(_ behaviour: String, to directory: TemporaryDirectory) throws {
        let source = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "zoo.py")
        let text = String(decoding: try Data(contentsOf: source), as: UTF8.self)
        let program = text.replacing("@behaviour@", with: behaviour).replacing(
            "@mebibytes@", with: String(TestLength.rounds(80, soak: 1024)))
        try directory.install("certprov-plugin-zoo", program.utf8)
    }

    static func host(_ directory: TemporaryDirectory) -> PluginHost {
        PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
    }

    /// - Parameter settings: Besides its directory.
    func provider(
        _ settings: [String: String] = ["timeout": "300"], in environment: ProviderEnvironment = .testing(),
        of other: PluginHost? = nil
    ) throws -> any CertificateProvider {
        var texts = settings
        texts["directory"] = directory.path
        let parameters = ProviderParameters(texts.mapValues { .init($0) })
        let before = Set(processes)
        let descriptor = try #require(try (other ?? host).provider(Self.id, parameters))
        // The process that has described the plugin ends by itself, and is none of the provider's.
        let end = ContinuousClock.now + .seconds(600)
        while !before.isSuperset(of: processes), .now < end { usleep(20_000) }
        return try descriptor.makeProvider(environment, parameters)
    }

    /// The processes of the plugin and of what it has started, launchers included.
    var processes: [pid_t] { commands.map(\.pid) }

    /// The same without the launchers.
    var plugins: [pid_t] {
        commands.filter { $0.words.first?.hasSuffix("certprov-plugin-launcher") == false }.map(\.pid)
    }

    /// The working directories of the plugin's processes.
    var workingDirectories: [String] {
        commands.compactMap { $0.words.first?.hasSuffix("certprov-plugin-launcher") == true ? $0.words[1] : nil }
    }

    private var commands: [(pid: pid_t, words: [String])] {
        guard let all = opendir("/proc") else { return [] }
        defer { closedir(all) }
        var commands: [(pid_t, [String])] = []
        while let entry = readdir(all) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            guard let pid = pid_t(name) else { continue }
            let words = Self.words(of: pid)
            if words.contains(where: { $0.contains(directory.path) }) { commands.append((pid, words)) }
        }
        return commands
    }

    /// Not by Foundation, which keeps memory for each file of `/proc` that it reads.
    private static func words(of pid: pid_t) -> [String] {
        let file = open("/proc/\(pid)/cmdline", O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return [] }
        defer { close(file) }
        var line = [UInt8](repeating: 0, count: 16 << 10)
        let count = read(file, &line, line.count)
        return line.prefix(max(0, count)).split(separator: 0).map { String(decoding: $0, as: UTF8.self) }
    }
}
