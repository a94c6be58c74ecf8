import Foundation
import Glibc
import TestSupport
import Testing

/// A directory of a test's own, with an identity store and a configuration of its own; it goes with its owner.
final class Sandbox: Sendable {
    let path: String

    init() throws {
        Surroundings.makeUsual()
        var template = Array("/tmp/certprov-e2e-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Subprocess.Failure(description: "mkdtemp: \(errno)") }
        path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        for name in ["state", "config", "home"] { mkdir(path + "/" + name, 0o700) }
        if BuiltCommand.isPlugged { try installPlugins() }
    }

    /// The plugins that stand for built-in providers. They get the variables of the command that uses them.
    private func installPlugins() throws {
        for id in ["mdm", "pkcs11"] {
            let script = """
                #!/bin/sh
                . \(path)/variables
                exec \(BuiltCommand.program("TestPlugin")) \(id)

                """
            try installPlugin(id, script)
        }
    }

    /// Writes a program by another process: what this one has open for writing, its other children have too.
    func install(_ program: String, to name: String, mode: String = "700") throws {
        let source = try write(program, to: "program.source")
        try Subprocess.run(["install", "-m", mode, source, path + "/" + name])
    }

    /// Puts a plugin into the directory `plugins`, and returns its path.
    @discardableResult
    func installPlugin(_ id: String, _ program: String, mode: String = "700") throws -> String {
        mkdir(path + "/plugins", 0o700)
        try install(program, to: "plugins/certprov-plugin-\(id)", mode: mode)
        return "\(path)/plugins/certprov-plugin-\(id)"
    }

    /// The same with the plugin of the tests.
    @discardableResult
    func installTestPlugin(_ id: String) throws -> String {
        let plugin = try installPlugin(id, "")
        try Subprocess.run(["install", "-m", "700", BuiltCommand.program("TestPlugin"), plugin])
        return plugin
    }

    /// Puts the plugin of the key store `tpm:` into the directory `plugins`.
    /// - Returns: The lines of a property file that lead to it, and to a TPM.
    func installTPMPlugin(_ tcti: String) throws -> String {
        let plugin = try installPlugin("tpm", "")
        try Subprocess.run(["install", "-m", "700", BuiltCommand.program("certprov-plugin-tpm"), plugin])
        return """
            PluginDirectory = \(path)/plugins
            KeyStore.tpm.tcti = \(tcti)
            KeyStore.tpm.timeout = 120

            """
    }

    /// Writes a property file for the fixture with a key on a curve, or another file.
    func configure(pkcs12 file: String = Fixtures.path("ec.p12"), _ more: String..., to name: String) throws -> String {
        let lines = [
            "CertificateProvider = pkcs12", "CertificateProvider.pkcs12.path = \(file)",
            "CertificateProvider.pkcs12.password-source = env:P12_PASSWORD",
        ]
        return try write((lines + more).map { $0 + "\n" }.joined(), to: name)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    var store: String { path + "/state/certprov" }

    var environment: [String: String] {
        [
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8",
            "HOME": path + "/home", "XDG_STATE_HOME": path + "/state", "XDG_CONFIG_HOME": path + "/config",
            "P12_PASSWORD": Fixtures.password,
        ]
    }

    /// Writes an identity and a PIN for the module whose faults tests command, which looks for them in `home`.
    func makeFaultyToken() throws {
        try write("1234\n", to: "pin")
        let made = try shell(
            """
            set -eu
            openssl pkcs8 -topk8 -nocrypt -in $1/ec.key -outform der -out "$HOME/key"
            openssl x509 -in $1/ec.pem -outform der -out "$HOME/certificate"
            """, Fixtures.path(""))
        guard made.status == 0 else { throw Subprocess.Failure(description: "\(made)") }
    }

    /// Runs the command to its end.
    @discardableResult
    func certprov(_ arguments: String..., with variables: [String: String] = [:]) throws -> Output {
        try run([BuiltCommand.path] + arguments, with: variables)
    }

    @discardableResult
    func certprov(_ arguments: [String], with variables: [String: String] = [:]) throws -> Output {
        try run([BuiltCommand.path] + arguments, with: variables)
    }

    /// Runs a shell script; `$CERTPROV` is the command, `$1`… the arguments.
    @discardableResult
    func shell(_ script: String, _ arguments: String..., with variables: [String: String] = [:]) throws -> Output {
        try run(["/bin/sh", "-c", script, "sh"] + arguments, with: variables)
    }

    @discardableResult
    func run(_ arguments: [String], with variables: [String: String] = [:]) throws -> Output {
        try start(arguments, with: variables).wait()
    }

    /// Hides the property file and the plugins of a certprov that is installed on this host, where there is one and root runs the tests.
    private static let entrance: [String] = {
        let places = ["/etc/certprov", "/usr/lib/certprov"].filter { FileManager.default.fileExists(atPath: $0) }
        guard !places.isEmpty, geteuid() == 0 else { return [] }
        let mounts = places.map { "/bin/mount -t tmpfs certprov \($0) && " }.joined()
        return ["/usr/bin/unshare", "--mount", "/bin/sh", "-c", mounts + "exec \"$@\"", "sh"]
    }()

    /// - Parameter seconds: Then it is killed.
    func start(
        _ arguments: [String], with variables: [String: String] = [:], seconds: Double = 600
    ) throws -> Subprocess {
        var environment = environment
        environment["CERTPROV"] = BuiltCommand.path
        environment.merge(variables) { $1 }
        if BuiltCommand.isPlugged {
            environment["CERTPROV_TEST_PLUGINS"] = path + "/plugins"
            let lines = environment.map { "export \($0.key)='\($0.value.replacing("'", with: "'\\''"))'\n" }
            try write(lines.joined(), to: "variables.new")
            try #require(rename(path + "/variables.new", path + "/variables") == 0)
        }
        return try Subprocess(
            Self.entrance + arguments, environment: environment, in: nil, .captured(), seconds: seconds)
    }

    /// Has the fixtures' authority issue a certificate for a request. Returns the file, with the issuer's certificate after it.
    func issue(_ request: String, to name: String, serial: Int, days: Int = 30) throws -> String {
        let file = path + "/" + name
        try shell(
            #"""
            printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n' >"$2.ext" &&
            openssl x509 -req -in "$1" -copy_extensions copy -CA "$3" -CAkey "$4" -set_serial "$5" -days "$6" -extfile "$2.ext" -out "$2" &&
            cat "$3" >>"$2"
            """#, request, file, Fixtures.path("intermediate.pem"), Fixtures.path("intermediate.key"), "\(serial)",
            "\(days)"
        ).require()
        return file
    }

    /// Writes a property file for an enrolment.
    /// - Returns: The option that names it.
    func configure(_ server: ESTServer, label: String = "", _ more: String = "") throws -> [String] {
        try write(ESTServer.password.utf8, to: "password")
        let file = try write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)\(label)
            CertificateProvider.mdm.trust-anchors = \(server.directory["ca.pem"])
            CertificateProvider.mdm.username = \(ESTServer.user)
            CertificateProvider.mdm.password-source = file:\(path)/password
            CertificateProvider.mdm.subject = CN=host,O=Example
            CertificateProvider.mdm.timeout = 600
            \(more)
            """.utf8, to: "client\(label.isEmpty ? "" : "-failing").properties")
        return ["--config", file]
    }

    /// The same with tokens of OAuth, for which the file `secret` has the client's secret.
    /// - Returns: The file.
    func configureOAuth(_ server: ESTServer) throws -> String {
        try write("estsecret", to: "secret")
        return try write(
            """
            CertificateProvider = mdm
            CertificateProvider.mdm.protocol = est
            CertificateProvider.mdm.url = https://localhost:\(server.port)
            CertificateProvider.mdm.trust-anchors = \(server.directory["ca.pem"])
            CertificateProvider.mdm.token-url = https://localhost:\(server.port)/token
            CertificateProvider.mdm.client-id = estclient
            CertificateProvider.mdm.client-secret-source = file:\(path)/secret
            CertificateProvider.mdm.subject = CN=host,O=Example

            """, to: "client.properties")
    }

    /// Writes a file in the sandbox and returns its path.
    @discardableResult
    func write(_ bytes: some Sequence<UInt8>, to name: String, mode: mode_t = 0o600) throws -> String {
        let file = name.hasPrefix("/") ? name : path + "/" + name
        try Data(bytes).write(to: URL(filePath: file))
        try #require(chmod(file, mode) == 0)
        return file
    }

    @discardableResult
    func write(_ text: String, to name: String, mode: mode_t = 0o600) throws -> String {
        try write(text.utf8, to: name, mode: mode)
    }

    /// Copies a fixture into the sandbox, so that a configuration can name one path for changing content.
    func copy(_ fixture: String, to name: String) throws -> String {
        try write(Data(contentsOf: URL(filePath: Fixtures.path(fixture))), to: name)
    }

    /// The path of the one entry in the store.
    func entry() throws -> String {
        let directory = store + "/identities/pkcs12"
        let names = try FileManager.default.contentsOfDirectory(atPath: directory)
        try #require(names.count == 1, "\(names)")
        return directory + "/" + names[0]
    }
}

/// The options that drive the PKCS#12 provider without a property file.
func adHoc(_ path: String, password: String = "env:P12_PASSWORD", _ more: String...) -> [String] {
    ["--provider", "pkcs12", "--set", "path=\(path)", "--set", "password-source=\(password)"] + more
}

func contents(_ path: String) throws -> [UInt8] { Array(try Data(contentsOf: URL(filePath: path))) }

func status(_ path: String) -> FileStatus? { FileStatus(path) }

func mode(_ path: String) -> mode_t? { FileStatus(path, followsLink: true)?.permissions }
