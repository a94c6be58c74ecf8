package import CertificateProviding
import FoundationEssentials
import Glibc
import Logon

/// The property files of the host service, and its own settings.
package struct HostConfiguration: Sendable {
    /// The property file of one identity.
    package struct File: Sendable {
        /// The name of the identity: the file's, without its suffix.
        package let name: String
        package let path: String
        /// Why it is not read; `nil` for a file that is.
        package var problem: ProviderError?
    }

    /// In the order of their names, or as the service's own file has them.
    package private(set) var files: [File]
    /// The file with metrics for a collector; `nil` for none.
    package private(set) var metricsFile: String?
    /// The path of the PKCS#11 socket; `nil` for none.
    package private(set) var pkcs11Socket: String?
    /// The path of the credential socket; `nil` for none.
    package private(set) var credentialSocket: String?

    /// The directory of property files.
    package static let directory = "/etc/certprov"
    /// The service's own file in it.
    package static let ownFile = "serve.properties"

    private static let identities = Parameter<[String]>(
        "Serve.identities", .list, absent: [], defaultValue: "all *.properties of the directory",
        summary: "Absolute paths of the property files whose identities certprov serve keeps."
    ) { text, _ throws(ParameterProblem) in
        let paths = text.commaSeparated
        guard paths.allSatisfy({ $0.hasPrefix("/") }) else { throw .expected("must be absolute paths") }
        return paths
    }
    private static let metrics = Parameter<String?>(
        "Serve.metrics-file", .path, defaultValue: "none",
        summary:
            "Absolute path of a file into which certprov serve writes its metrics, for the textfile collector of node_exporter."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be an absolute path") }
        return text
    }

    package static let pkcs11 = Parameter<String?>(
        "Serve.pkcs11-socket", .path, defaultValue: "none",
        summary:
            "Absolute path of the socket at which certprov serve is a PKCS#11 token, for p11-kit-client.so. Every user may connect; grants decide."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be an absolute path") }
        return text
    }
    package static let credentials = Parameter<String?>(
        "Serve.credential-socket", .path, defaultValue: "none",
        summary:
            "Absolute path of the socket at which systemd fetches credentials: LoadCredential=NAME.pem:PATH. A change takes a restart of "
            + "the service."
    ) { text, _ throws(ParameterProblem) in
        guard text.hasPrefix("/") else { throw .expected("must be an absolute path") }
        return text
    }

    /// The settings of the service's own file.
    package static let section = SettingsSection(
        title: "The host service", namespaces: ["Serve."],
        [identities.descriptor, metrics.descriptor, pkcs11.descriptor, credentials.descriptor])

    /// Reads the service's own file, or looks for the property files. Blocks on the file system.
    ///
    /// - Parameters:
    ///   - file: The service's own file, or the property file of a single identity; `nil` for that of the directory, if there is one.
    ///   - directory: `nil` for ``directory``.
    /// - Throws: `configurationMissing` without any property file; `configurationInvalid` for the service's own.
    package static func read(file: String?, directory: String?) throws(ProviderError) -> HostConfiguration {
        let directory = directory ?? Self.directory
        let own = file ?? "\(directory)/\(ownFile)"
        guard file != nil || access(own, F_OK) == 0 else { return HostConfiguration(files: try listed(directory)) }
        if let file, try LogonConfiguration.listsProviders(path: file) {
            return HostConfiguration(files: [File(name: name(of: file), path: file)])
        }
        try requireTrusted(own)
        let settings = try LogonConfiguration.settings(path: own, of: section)
        let named = settings[identities]
        var configuration = HostConfiguration(
            files: named.isEmpty ? try listed(directory) : named.map { File(name: name(of: $0), path: $0) })
        configuration.metricsFile = settings[metrics]
        configuration.pkcs11Socket = settings[pkcs11]
        configuration.credentialSocket = settings[credentials]
        return configuration
    }

    /// The property file of a single identity, which may have any name.
    package init(only path: String) { files = [File(name: "tunnel", path: path)] }

    private init(files: [File]) {
        self.files = files
        refuse()
    }

    private static func listed(_ directory: String) throws(ProviderError) -> [File] {
        let names: [String]
        do { names = try FileManager.default.contentsOfDirectory(atPath: directory) } catch {
            throw ProviderError(
                .configurationMissing,
                "\(directory.withVisibleControls) cannot be read: \(errorText(errno)). Name the directory of the property files with "
                    + "--directory, or one file with --config.")
        }
        let files = names.filter { $0.hasSuffix(suffix) && $0 != ownFile && !$0.hasPrefix(".") }.sorted()
        guard !files.isEmpty else {
            throw ProviderError(
                .configurationMissing,
                "\(directory.withVisibleControls) has no property file. Put one into it, such as web.properties, or name another "
                    + "directory with --directory.")
        }
        return files.map { File(name: name(of: $0), path: "\(directory)/\($0)") }
    }

    private static let suffix = ".properties"

    private static func name(of path: String) -> String {
        let file = path.split(separator: "/").last.map(String.init) ?? path
        return file.hasSuffix(suffix) ? String(file.dropLast(suffix.count)) : file
    }

    /// Notes the files that are not read: by their names, and one of two names for the same file.
    private mutating func refuse() {
        for index in files.indices {
            let file = files[index]
            let isName =
                (1...64).contains(file.name.utf8.count)
                && file.name.utf8.allSatisfy { byte in
                    switch byte {
                    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "0")...UInt8(ascii: "9"),
                        UInt8(ascii: "_"),
                        UInt8(ascii: "-"):
                        true
                    default: false
                    }
                }
            let same = files[..<index].first { $0.name == file.name || Self.isSame($0.path, file.path) }
            let shown = file.path.withVisibleControls
            if !isName {
                files[index].problem = ProviderError(
                    .configurationInvalid,
                    "\(shown): The name of an identity is that of its file, with 1 to 64 of a to z, 0 to 9, _ and -; rename the file."
                )
            } else if let same {
                files[index].problem = ProviderError(
                    .configurationInvalid,
                    "\(shown): \(same.path.withVisibleControls) is "
                        + (same.name == file.name ? "a file of the same name" : "the same file")
                        + "; remove one of them.")
            }
        }
    }

    private static func isSame(_ one: String, _ other: String) -> Bool {
        var (first, second) = (stat(), stat())
        guard stat(one, &first) == 0, stat(other, &second) == 0 else { return one == other }
        return first.st_dev == second.st_dev && first.st_ino == second.st_ino
    }

    /// Checks that root and this user alone can change a property file: it decides who gets a key.
    static func requireTrusted(_ path: String) throws(ProviderError) {
        do throws(TrustedPath.Refusal) { _ = try TrustedPath.check(RegularFile.absolute(path), .file) } catch {
            throw ProviderError(
                .configurationInvalid, "\(path.withVisibleControls) is not read: \(error.reason.withVisibleControls).")
        }
    }
}
