import CertificateProviding
import TestSupport
import Testing

@testable import Logon

@Suite struct LogonConfigurationTests {
    private let directory: TemporaryDirectory
    private let pkcs12 = ProviderID("pkcs12")
    private let mdm = ProviderID("mdm")

    init() throws { directory = try TemporaryDirectory() }

    private func load(_ text: String, _ form: FileForm = .properties) throws -> LogonConfiguration {
        let path = try directory.write(text.utf8, to: form.fileName)
        return try LogonConfiguration.load(path: path, registry: try registry())
    }

    @Test("An empty configuration has the defaults", arguments: FileForm.allCases)
    func fillsInDefaults(form: FileForm) throws {
        let configuration = try load(form.text([]), form)
        #expect(configuration == LogonConfiguration())
        #expect(configuration.path == directory.path + "/" + form.fileName)
        #expect(configuration.host == nil && configuration.port == nil && configuration.securityConfiguration == nil)
        #expect(configuration.userCreationPolicy == .certificate)
        #expect(configuration.farmID == "0" && configuration.urlSuffix.isEmpty && configuration.domain.isEmpty)
        #expect(configuration.usesHTTPS)
        #expect(configuration.providers.isEmpty && configuration.warnings.isEmpty)
    }

    private static let everything: [(String, String)] = [
        ("Host", " hub.example.com "), ("Port", "8082"), ("SecurityConfiguration", "Cert02"),
        ("UserCreationPolicy", "Certificate"), ("FarmID", "7"), ("URLSuffix", "/ias_relay"), ("Domain", "default"),
        ("HTTPS", "FALSE"), ("ShareCredentials", "False"), ("CertificateProvider", "mdm , pkcs12"),
        ("CertificateProvider.pkcs12.path", "/etc/client.p12"), ("CertificateProvider.mdm.url", "https://mdm.example"),
        ("CertificateProvider.pkcs12.password-source", "file:/run/secret"),
    ]

    @Test("All settings of a configuration file are read", arguments: FileForm.allCases)
    func readsEverything(form: FileForm) throws {
        let configuration = try load(form.text(Self.everything), form)
        #expect(configuration.host == "hub.example.com")
        #expect(configuration.port == 8082)
        #expect(configuration.securityConfiguration == "Cert02")
        #expect(configuration.userCreationPolicy == .certificate)
        #expect(configuration.farmID == "7")
        #expect(configuration.urlSuffix == "/ias_relay")
        #expect(configuration.domain == "default")
        #expect(!configuration.usesHTTPS)
        #expect(configuration.providers.map(\.id) == [mdm, pkcs12])
        #expect(configuration.providers.first?.parameters.names == ["url"])
        let path = try #require(configuration.providers.last?.parameters["path"])
        #expect(path.text == "/etc/client.p12")
        #expect(path.origin == "\(directory.path)/\(form.fileName):\(form.firstLine + 10)")
        #expect(
            configuration.warnings.count == 1 && configuration.warnings.allSatisfy { $0.hasSuffix("has no effect.") })
    }

    @Test("A property file and a property list give the same configuration")
    func bothFormsSayTheSame() throws {
        let properties = try load(FileForm.properties.text(Self.everything), .properties)
        #expect(try load(FileForm.plist.text(Self.everything), .plist) == properties)
        #expect(try load(FileForm.properties.text(Array(Self.everything.dropLast()))) != properties)
        let nested = """
            <plist version="1.0"><dict>
            <key>Host</key><string>hub.example.com</string><key>Port</key><integer>8082</integer>
            <key>SecurityConfiguration</key><string>Cert02</string><key>FarmID</key><integer>7</integer>
            <key>URLSuffix</key><string>/ias_relay</string><key>Domain</key><string>default</string>
            <key>HTTPS</key><false/><key>ShareCredentials</key><false/>
            <key>CertificateProvider</key><string>mdm,pkcs12</string>
            <key>CertificateProvider.pkcs12</key><dict>
              <key>path</key><string>/etc/client.p12</string>
              <key>password-source</key><string>file:/run/secret</string>
            </dict>
            <key>CertificateProvider.mdm</key><dict><key>url</key><string>https://mdm.example</string></dict>
            </dict></plist>
            """
        #expect(try load(nested, .plist) == properties)
    }

    struct Mistake: Sendable, CustomTestStringConvertible {
        var pairs: [(String, String)]
        var key: String
        var part: String
        /// Counted from the first pair.
        var line: Int

        init(_ pairs: [(String, String)], key: String? = nil, _ part: String = "", line: Int = 0) {
            self.pairs = pairs
            self.key = key ?? pairs[line].0
            self.part = part
            self.line = line
        }

        var testDescription: String { pairs.map { "\($0)=\($1)" }.joined(separator: " ") }
    }

    private static let ports = [
        "", "0", "65536", "+80", "-1", "8e3", "0x50", "80.0", "8 0", "99999999999999999999", "٨٠", "x",
    ]

    private static let mistakes: [Mistake] =
        ports.map { Mistake([("Host", "h"), ("Port", $0)], "1 to 65535", line: 1) }
        + ["", " ", "a b", "http://a", "a/b", "a\u{a0}b"].map { Mistake([("Host", $0)], "host name") }
        + ["certificates", "cert", "none", "true"].map {
            Mistake([("Host", "h"), ("UserCreationPolicy", $0)], "certificate, automatic or manual", line: 1)
        }
        + ["", "yes", "1", "tru"].flatMap {
            [Mistake([("HTTPS", $0)], "true"), Mistake([("ShareCredentials", $0)], "true")]
        }
        + [
            Mistake([("SecurityConfiguration", " ")]),
            // The system trust store instead of the file that was meant.
            Mistake([("TrustAnchors", "")], "must not be blank"), Mistake([("TrustAnchors", " ")], "must not be blank"),
            Mistake([("Host", "sEcReT"), ("Port", "1"), ("Host", "2")], "already", line: 2),
            Mistake([("CertificateProvider", "sEcReT")], "installed: bare, mdm, pkcs12"),
            Mistake([("CertificateProvider", "pkcs12, sEcReT")], "position 2"),
            Mistake([("CertificateProvider", "PKCS12")], "installed"),
            Mistake([("CertificateProvider", "pkcs12,")], "position 2"),
            Mistake([("CertificateProvider", ",")], "position 1"),
            Mistake([("CertificateProvider", "pkcs12 mdm")], "installed"),
            Mistake([("CertificateProvider", "pkcs12, mdm ,pkcs12")], "'pkcs12' twice"),
            Mistake([("UserCreationPolicy", "manual"), ("CertificateProvider", "sEcReT")], "installed", line: 1),
            Mistake(
                [("CertificateProvider", "pkcs12"), ("CertificateProvider.pkcs12.pth", "sEcReT")],
                "it takes path, password-source, alias", line: 1),
            Mistake([("CertificateProvider.pkcs12.Path", "sEcReT")], "it takes path"),
            Mistake([("CertificateProvider.pkcs12.path.x", "sEcReT")], "it takes path"),
            Mistake([("CertificateProvider.bare.x", "sEcReT")], "it takes renew-at"),
            Mistake([("CertificateProvider.other.path", "sEcReT")], "installed"),
            Mistake([("CertificateProvider.PKCS12.path", "sEcReT")], "installed"),
            Mistake([("CertificateProvider.pkcs12", "sEcReT")], "<id>.<parameter>"),
            Mistake([("CertificateProvider.pkcs12.", "sEcReT")], "<id>.<parameter>"),
            Mistake([("CertificateProvider.", "sEcReT")], "<id>.<parameter>"),
            Mistake([("CertificateProvider..path", "sEcReT")], "installed"),
            Mistake([("certificateProvider", "sEcReT")], "spelled CertificateProvider"),
            Mistake([("certificateprovider.pkcs12.path", "sEcReT")], "spelled CertificateProvider"),
            Mistake([("CertificateProviders", "sEcReT")], "did you mean CertificateProvider?"),
        ]

    @Test(
        "A mistake in a setting is refused with file, line and key, and without the value",
        arguments: FileForm.allCases, mistakes)
    func refuses(form: FileForm, mistake: Mistake) throws {
        let error = failure { try load(form.text(mistake.pairs), form) }
        let place = "\(directory.path)/\(form.fileName):\(form.firstLine + mistake.line): "
        for part in ["'\(mistake.key)'", mistake.part] { expectInvalid(error, at: place, part) }
    }

    @Test(
        "A property list value that is not a single value is refused",
        arguments: ["<array><string>pkcs12</string></array>", "<real>1</real>", "<data>AAEC</data>"])
    func refusesWhatIsNotASingleValue(value: String) {
        let error = failure { try load("<plist><dict>\n<key>CertificateProvider</key>\(value)</dict></plist>", .plist) }
        expectInvalid(error, ":2: The key 'CertificateProvider' must have a single value")
    }

    @Test("A key without effect gives a warning with file and line", arguments: FileForm.allCases)
    func warnsOfWhatHasNoEffect(form: FileForm) throws {
        let configuration = try load(
            form.text([
                ("X-Other", "sEcReT"), ("CertificateProvider", "pkcs12"),
                ("CertificateProvider.mdm.url", "sEcReT"),
            ]), form)
        let place = { (line: Int) in "\(directory.path)/\(form.fileName):\(form.firstLine + line): " }
        #expect(
            configuration.warnings == [
                place(0) + "The key 'X-Other' is unknown and has no effect.",
                place(2) + "The key 'CertificateProvider.mdm.url' has no effect, because CertificateProvider does not "
                    + "list 'mdm'.",
            ])
    }

    @Test(
        "A key that looks like one of certprov's is an error, and not a key of another program",
        arguments: FileForm.allCases,
        [
            ("port", "Port"), ("https", "HTTPS"), ("HTTP", "HTTPS"), ("TrustAnchor", "TrustAnchors"),
            ("TrustAnchor.crl", "TrustAnchors.crl"), ("TrustAnchors-crl", "TrustAnchors.crl"),
            ("TrustAnchors_crl-mode", "TrustAnchors.crl-mode"), ("trustanchors", "TrustAnchors"),
            ("TrustAnchor.crl-url", "TrustAnchors.…"), ("TrsutAnchors", "TrustAnchors"), ("Peer.allow", "Peers.allow"),
            ("Peers", "Peers.…"), ("peer.allow.1", "Peers.allow"), ("PeersAllow", "Peers.allow"),
            ("Peers-allow", "Peers.allow"),
            ("Pers.allowed", "Peers.…"), ("P\u{435}ers.allow", "Peers.allow"), ("\u{feff}Peers.allow", "Peers.allow"),
            ("Vaults.key", "Vault.key"), ("Registratoin.pin", "Registration.pin"), ("Passcodes.max", "Passcode.…"),
            ("CertificatProvider.pkcs12.path", "CertificateProvider.…"), ("KeyStores.test.path", "KeyStore.…"),
            ("PluginsDirectory", "PluginDirectory"), ("UserCreationPolice", "UserCreationPolicy"),
        ])
    func misspeltKeys(form: FileForm, misspelt: (key: String, known: String)) throws {
        let (key, known) = misspelt
        let peers = SettingsSection(
            title: "Peers", namespaces: ["TrustAnchors.", "Peers."],
            ["TrustAnchors.crl", "TrustAnchors.crl-mode", "Peers.allow"].map {
                Parameter<String?>.string($0, summary: "Whom to trust.").descriptor
            })
        let path = try directory.write(form.text([("Domain", "a"), (key, "sEcReT")]).utf8, to: form.fileName)
        let error = failure {
            try LogonConfiguration.load(path: path, registry: ProviderRegistry(sections: [peers]))
        }
        expectInvalid(error, at: "\(path):\(form.firstLine + 1): ", "looks like '\(known)'")
    }

    @Test(
        "A key of another program is a warning",
        arguments: [
            "PushURL", "Password", "URLPrefix", "Hosts", "Sort", "Main", "TrustStore", "Keys.store",
            "Server.Peers.allow", "log4j.rootLogger", "Log.file",
        ])
    func keysOfOthers(key: String) throws {
        #expect(try load("\(key) = x").warnings.count == 1)
    }

    @Test(
        "Providers in the file count only with the policy certificate", arguments: FileForm.allCases,
        [
            ("", UserCreationPolicy.certificate), (" ", .certificate), ("CERTIFICATE", .certificate),
            ("automatic", .automatic), ("Manual", .manual),
        ])
    func onlyTheCertificatePolicyHasProviders(form: FileForm, policy: (text: String, value: UserCreationPolicy)) throws
    {
        let configuration = try load(
            form.text([("UserCreationPolicy", policy.text), ("CertificateProvider", "pkcs12")]), form)
        #expect(configuration.userCreationPolicy == policy.value)
        #expect(configuration.providers.map(\.id) == (policy.value == .certificate ? [pkcs12] : []))
    }

    @Test(arguments: ["1", "80", "8082", "65535", "00443", " 443 "]) func acceptsPorts(text: String) throws {
        #expect(try load("Port=\(text)").port == UInt16(text.filter { $0 != " " }))
    }

    @Test func reportsAMissingFile() throws {
        let path = directory.path + "/clienthub.properties"
        let error = failure { try LogonConfiguration.load(path: path, registry: try registry()) }
        #expect(error?.code == .configurationMissing)
        #expect(error?.message.contains(path) == true)
    }

    @Test("A configuration can be made without a file")
    func isMadeInMemory() {
        let configuration = LogonConfiguration(providers: [ConfiguredProvider(id: pkcs12)])
        #expect(configuration.providers == [ConfiguredProvider(id: pkcs12)])
        #expect(configuration.path == nil && configuration.userCreationPolicy == .certificate)
    }

    @Test func showsNoParameterValue() throws {
        let configuration = try load("CertificateProvider=pkcs12\nCertificateProvider.pkcs12.path=sEcReT\nX=sEcReT")
        var dumped = ""
        dump(configuration, to: &dumped)
        for text in ["\(configuration)", String(reflecting: configuration), dumped] {
            #expect(!text.contains("sEcReT"))
        }
    }

    private func keyStoreRegistry() throws -> ProviderRegistry {
        try ProviderRegistry(keyStores: [
            KeyStoreDescriptor(
                scheme: "vault", id: ProviderID("vault"), displayName: "", summary: "",
                parameters: [Parameter.seconds("timeout", default: 20, in: 1...60, summary: "").descriptor]
            ) { _, _, _ throws(ProviderError) in
                throw ProviderError(.internal, "This is not made.")
            }
        ])
    }

    @Test(arguments: FileForm.allCases) func keyStoresHaveParameters(form: FileForm) throws {
        let path = try directory.write(form.text([("KeyStore.vault.timeout", "30")]).utf8, to: form.fileName)
        let configuration = try LogonConfiguration.load(path: path, registry: keyStoreRegistry())
        #expect(configuration.keyStores["vault"]?.string("timeout") == "30" && configuration.warnings.isEmpty)
        let place = configuration.keyStores["vault"]?["timeout"]?.origin
        #expect(place == "\(path):\(form.firstLine)")
        // The manager parses them.
        let wrong = LogonConfiguration(keyStores: ["vault": ProviderParameters(["timeout": .init("s3cret")])])
        let error = failure {
            try LogonManager(configuration: wrong, registry: keyStoreRegistry()) { _ in environment() }
        }
        expectInvalid(error, "'timeout' must be a number")
    }

    @Test(
        "A misspelt key store parameter is refused with file and line",
        arguments: [
            ("KeyStore.vault.colour", "is not a parameter of the key store 'vault'; it takes timeout"),
            ("KeyStore.tpm.timeout", "names a key store that is not installed; installed: vault"),
            ("KeyStore.vault", "must have the form KeyStore.<scheme>.<parameter>"),
            ("keystore.vault.timeout", "must be spelled KeyStore"),
        ])
    func aKeyStoresParameterIsSpelledRight(key: String, reason: String) throws {
        let path = try directory.write("\(key) = sEcReT\n".utf8, to: "file.properties")
        let error = failure { try LogonConfiguration.load(path: path, registry: keyStoreRegistry()) }
        expectInvalid(error, at: path + ":1: ", reason)
    }
}
