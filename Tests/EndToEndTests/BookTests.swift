import Foundation
import TestSupport
import Testing

/// The transcripts of the README and the book: each is run and compared by a test, or has a reason against it.
@Suite struct BookTests {
    /// How a transcript is tested. It is known by its page and its first line.
    private enum Claim {
        /// By a function of a test file.
        case test(String, String)
        /// By a script that the gate runs (make example). It compares what matters and not each line, since the processes end
        /// with it.
        case script(String)
        /// It is not run, for this reason.
        case notRun(String)
    }

    private static let root = "it needs root, systemd and units that are installed"
    private static let claims: [String: [String: Claim]] = [
        "Documentation/ACME.md": ["# install -d": .notRun("it makes a directory of the host's web server")],
        "README.md": ["$ make demo": .notRun("the gate runs both commands")],
        "Documentation/GettingStarted.md": [
            "…": .test("BookTests", "theDemonstrationIsThatOfThePage"),
            "$ openssl req": .test("BookTests", "gettingStartedIsTrue"),
            "$ cat >app.properties": .test("BookTests", "gettingStartedIsTrue"),
            "$ certprov fetch": .test("BookTests", "gettingStartedIsTrue"),
            "$ openssl pkcs12": .test("BookTests", "gettingStartedIsTrue"),
            "$ openssl s_server": .test("BookTests", "gettingStartedIsTrue"),
            "$ certprov connect": .test("BookTests", "gettingStartedIsTrue"),
        ],
        "Documentation/DeviceIdentity.md": [
            "# tpm2_createek": .script("Examples/AttestationServer/run"), "# certprov check": .notRun(root),
        ],
        "Documentation/Enrolment.md": [
            "$ (umask 077; printf estpwd": .test("EnrolmentTests", "theServersOfThePageEnrol"),
            "$ (umask 077; printf secret": .test("EnrolmentTests", "theServersOfThePageEnrol"),
        ],
        "Documentation/Installing.md": [
            "$ sha256sum": .script("Scripts/release-test"), "$ make deb": .script("Scripts/deb-test"),
            "# make install": .script("Scripts/package-test"),
            "# install -m 600": .script("Scripts/deb-test"),
            "# systemctl enable": .script("Tests/Systemd/run"),
            "# systemd-run": .script("Tests/Systemd/run"),
            "# certprov unregister": .notRun("Scripts/deb-test purges, and a registration needs its server"),
        ],
        "Documentation/Events.md": [
            "$ journalctl": .test("EventsTests", "eventsOfTheCommand"),
            "$ certprov serve": .test("EventsTests", "eventsOfAService"),
        ],
        "Documentation/ServingOtherPrograms.md": ["# systemctl enable": .script("Tests/Systemd/run")],
        "Documentation/Tokens.md": ["$ softhsm2-util": .test("BookTests", "theTokenPageIsTrue")],
        "Documentation/Signing.md": [
            "$ certprov keys create": .test("BookTests", "theSigningPageIsTrue"),
            "$ certprov sign cms": .test("BookTests", "theSigningPageIsTrue"),
            "$ certprov sign pdf": .test("BookTests", "theSigningPageIsTrue"),
            "$ certprov verify": .test("BookTests", "theSigningPageIsTrue"),
        ],
        "Documentation/Plugins.md": ["$ certprov plugin new": .test("BookTests", "thePluginCommandsAreTrue")],
        "Documentation/Registration.md": [
            "$ certprov register": .test("RegistrationCommandTests", "theCommandsOfThePageWork")
        ],
        "Documentation/Renewal.md": ["# certprov fetch": .test("BookTests", "theTimerPageIsTrue")],
        "Documentation/WritingAPlugin.md": [
            "$ certprov plugin new": .test("PluginAuthorTests", "thePageIsTrue"),
            "$ sed": .test("PluginAuthorTests", "thePageIsTrue"),
            "$ cat": .test("PluginAuthorTests", "thePageIsTrue"),
            "$ certprov plugin trace": .test("PluginAuthorTests", "thePageIsTrue"),
        ],
        "Documentation/KeyStores.md": [
            "$ certprov plugin verify": .test("../ReadmeTests/PluginPagesTests", "theKeyStoreConformsAsAPlugin")
        ],
        "Documentation/HandlingSecrets.md": [
            "$ certprov plugin trace": .test("../ReadmeTests/PluginPagesTests", "thePythonPluginIsTracedWithoutSecrets")
        ],
        "Documentation/SigningRequests.md": ["$ openssl rand": .test("RequestsPageTests", "bothSidesByTheCommand")],
        "Documentation/Troubleshooting.md": [
            "# systemd-run": .script("Tests/Systemd/run"),
            "# certprov fetch": .notRun("it asks at a terminal for the PIN of a token"),
            "$ openssl s_client": .notRun("it is for a server of the reader"),
        ],
    ]

    private static let examples: [String: [String: Claim]] = [
        "Examples/MutualTLSService/README.md": [
            "$ swift build": .script("Examples/MutualTLSService/run"), "$ mv": .script("Examples/MutualTLSService/run"),
            "2026": .script("Examples/MutualTLSService/run"), "# swift build": .notRun(root),
        ],
        "Examples/AttestationServer/README.md": [
            "$ ./attestation-server": .script("Examples/AttestationServer/run")
        ],
        "Examples/PlatformServer/README.md": [
            "$ swift build": .script("Examples/PlatformServer/run"),
            "$ curl --cacert server-ca.pem --cert-type": .script("Examples/PlatformServer/run"),
            "$ curl --cacert server-ca.pem -u": .script("Examples/PlatformServer/run"),
            "$ platform-server": .script("Examples/PlatformServer/run"),
        ],
        "Examples/DocumentSigning/README.md": ["$ sign-document": .script("Examples/DocumentSigning/run")],
        "Examples/ContractSigning/README.md": [
            "$ contract-server serve": .script("Examples/ContractSigning/run"),
            "$ curl --cacert server/ca.pem": .script("Examples/ContractSigning/run"),
            "$ cat host.properties": .script("Examples/ContractSigning/run"),
            "$ contracts sign": .test(
                "../../Examples/ContractSigning/Tests/ContractsTests/EndToEnd/SignatoryTests", "hosts"),
            "$ openssl cms": .script("Examples/ContractSigning/run"),
        ],
        "Examples/SplitKeySigning/README.md": [
            "$ dvs sign --offline": .test(
                "../../Examples/SplitKeySigning/Tests/SplitKeySigningTests/EndToEnd/EndToEndTests", "terminal"),
            "$ mkdir -m 700 /tmp/demo": .script("Examples/SplitKeySigning/run"),
            "$ (umask 077; python3 -m authority": .script("Examples/SplitKeySigning/run"),
            "$ relying-party serve": .script("Examples/SplitKeySigning/run"),
            "$ cat /tmp/demo/authority/ca.pem": .script("Examples/SplitKeySigning/run"),
        ],
        "Examples/VaultProvider/README.md": ["$ vault-fetch": .script("Examples/VaultProvider/run")],
        "Examples/Plugins/openbao/README.md": ["$ CERTPROV": .script("Examples/Plugins/openbao/run")],
        "Examples/Plugins/ssh-agent/README.md": ["$ certprov fetch": .script("Examples/Plugins/ssh-agent/run")],
    ]

    @Test(arguments: Page.all) func eachTranscriptIsClaimed(_ name: String) throws {
        let page = try Page(name)
        let claims = Self.claims[name] ?? Self.examples[name] ?? [:]
        var unused = claims
        for transcript in page.transcripts {
            let first = try #require(transcript.lines.first)
            // Messages of errors: their wording may change, and the code in brackets has a section.
            if first.hasPrefix("certprov: ") {
                for line in transcript.lines where !line.isEmpty {
                    let code = try #require(line.wholeMatch(of: /certprov: .+ \[(\w+)\]/)?.1, "\(name): \(line)")
                    #expect(try Page("Documentation/Troubleshooting.md").text.contains("\n## \(code)\n"))
                }
                continue
            }
            let claim = claims.first { first.hasPrefix($0.key) }
            unused[claim?.key ?? ""] = nil
            switch claim?.value {
            case nil: Issue.record("\(name): no test runs '\(first)'.")
            case .notRun: break
            case .script(let name):
                #expect(FileManager.default.isExecutableFile(atPath: Page.root.appending(path: name).path), "\(name)")
            case .test(let file, let function):
                let source = try String(
                    contentsOf: Page.root.appending(path: "Tests/EndToEndTests/\(file).swift"), encoding: .utf8)
                #expect(source.contains("func \(function)("))
            }
        }
        #expect(unused.isEmpty, "\(name) has no such transcripts.")
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func gettingStartedIsTrue() throws {
        let sandbox = try Sandbox()
        try sandbox.expect(Page("Documentation/GettingStarted.md").steps)
        // Formats.md names the stored files.
        let section = try #require(
            try Page("Documentation/Formats.md").text.components(separatedBy: "\n## ").first {
                $0.hasPrefix("The state directory\n")
            })
        let known = section.matches(of: #/(?m)^\| `([^`]+)` \|/#).map { $0.1.split(separator: "/") }
        let files = FileManager.default.enumerator(atPath: sandbox.store)?.allObjects.compactMap { $0 as? String } ?? []
        #expect(files.contains("store.key") && files.contains { $0.hasPrefix("identities/pkcs12/") })
        for file in files {
            let parts = file.split(separator: "/")
            let isKnown = known.contains { pattern in
                pattern.count >= parts.count && zip(pattern, parts).allSatisfy { ["ID", "NAME", $1].contains($0) }
            }
            #expect(isKnown, "\(file)")
        }
    }

    /// Without systemd, and with a property file of the test.
    @Test(.enabled(if: TestLength.hasSeconds)) func theTimerPageIsTrue() throws {
        let sandbox = try Sandbox()
        let identity = sandbox.path + "/web"
        let file = try sandbox.write(
            "CertificateProvider = pkcs12\nCertificateProvider.pkcs12.path = \(identity).p12\n", to: "web.properties")
        let setup = """
            openssl req -x509 -newkey rsa:2048 -noenc -days 90 -subj /O=Example/CN=web -keyout \(identity).key -out \(identity).pem
            openssl pkcs12 -export -in \(identity).pem -inkey \(identity).key -passout pass: -out \(identity).p12
            """
        var steps = try Page("Documentation/Renewal.md").steps.filter { !$0.command.hasPrefix("systemctl ") }
        for index in steps.indices { steps[index].command.replace("/etc/certprov/web.properties", with: file) }
        try sandbox.expect(steps, after: setup)
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func theDemonstrationIsThatOfThePage() throws {
        let transcript = try #require(
            try Page("Documentation/GettingStarted.md").transcripts.first { $0.lines[0] == "…" })
        let programs = URL(filePath: BuiltCommand.path).deletingLastPathComponent().path
        let run = try Sandbox().start([Page.root.appending(path: "Scripts/demo").path, programs]).wait().require()
        let lines = run.stdout.replacing(/\u{1b}\[\d+m/, with: "").split(
            separator: "\n", omittingEmptySubsequences: false)
        #expect(Transcript.fits((transcript.lines + ["…"])[...], lines.map(String.init)[...]), "\(run)")
    }

    /// The token and the CA are those that the page asks for.
    @Test(.enabled(if: TestLength.hasSeconds)) func theTokenPageIsTrue() throws {
        let sandbox = try Sandbox()
        let configuration = try sandbox.write(
            "directories.tokendir = \(sandbox.path)/home/tokens\nlog.level = ERROR\n", to: "softhsm2.conf")
        let page = try Page("Documentation/Tokens.md")
        try sandbox.expect(
            page.steps, after: "mkdir -m 700 tokens\n" + ServicePagesTests.tokenSetup(page),
            with: ["SOFTHSM2_CONF": configuration])
    }

    /// A program other than certprov sends the line end with the PIN.
    @Test("No command writes a secret with a line end at its end", arguments: Page.all)
    func secretsHaveNoLineEnd(_ name: String) throws {
        let page = try Page(name)
        let written = page.text.matches(of: #/\becho\s[^|`\n]*>\s*\S*(pin|PIN|passw|passcode|challenge|secret)/#)
        #expect(written.isEmpty, "\(written.map { String($0.0) })")
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func theSigningPageIsTrue() throws {
        let setup = """
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 90 -subj /O=Example/CN=CA -keyout ca.key -out ca.pem
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /O=Example/CN=signer -keyout identity.key -out identity.csr
            openssl x509 -req -in identity.csr -CA ca.pem -CAkey ca.key -days 30 -out identity.pem
            mkdir -p "$XDG_CONFIG_HOME/certprov"
            printf 'CertificateProvider = pem\nCertificateProvider.pem.certificate = %s\nCertificateProvider.pem.key = %s\n' \
                "$PWD/identity.pem" "$PWD/identity.key" >"$XDG_CONFIG_HOME/certprov/clienthub.properties"
            echo report >report.txt
            mkdir nss
            certutil -d sql:nss -N --empty-password
            certutil -d sql:nss -A -n ca -t CT,C,C -i ca.pem
            printf '%%PDF-1.7\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n' >contract.pdf
            printf '2 0 obj\n<</Type/Pages/Kids[3 0 R]/Count 1>>\nendobj\n' >>contract.pdf
            printf '3 0 obj\n<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]>>\nendobj\n' >>contract.pdf
            printf 'xref\n0 4\n0000000000 65535 f \n0000000009 00000 n \n0000000054 00000 n \n0000000105 00000 n \n' >>contract.pdf
            printf 'trailer\n<</Size 4/Root 1 0 R>>\nstartxref\n170\n%%%%EOF\n' >>contract.pdf
            """
        try Sandbox().expect(Page("Documentation/Signing.md").steps, after: setup)
    }

    @Test(.enabled(if: TestLength.hasSeconds)) func thePluginCommandsAreTrue() throws {
        try Sandbox().expect(Page("Documentation/Plugins.md").steps)
    }
}
