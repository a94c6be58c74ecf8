import Foundation
import Glibc
import TestSupport
import Testing

/// The command's messages about plugins that are absent, have the wrong name, or do not speak the protocol.
@Suite(.enabled(if: TestLength.hasSeconds)) struct PluginMistakeTests {
    private let sandbox: Sandbox
    private var plugins: String { sandbox.path + "/plugins" }

    init() throws {
        sandbox = try Sandbox()
        mkdir(plugins, 0o700)
    }

    /// A plugin that answers each request that it knows with a line. The host sends one that no plugin knows at some starts.
    private func install(_ id: String, describing provider: String, answering answer: String) throws {
        let hello =
            #"{"id":1,"result":{"version":1,"id":"\#(id)","provider":{"displayName":"T","summary":"T."\#(provider)}}}"#
        try sandbox.installPlugin(
            id,
            #"""
            #!/bin/sh
            while read -r line; do
                case $line in
                *'"hello"'*) echo '\#(hello)' ;;
                *'"configure"'*) echo '{"id":2,"result":{}}' ;;
                *'"request"'*)
                    number=${line#*'"id":'}; number=${number%%[!0-9]*}
                    case $line in
                    *'"x-unknown'*) printf '{"id":%s,"error":{"code":"unsupported","message":"No."}}\n' "$number" ;;
                    *) printf '\#(answer)\n' "$number" ;;
                    esac ;;
                esac
            done

            """#)
    }

    private func configuration(_ lines: String, directory: String? = nil) throws -> String {
        try sandbox.write("PluginDirectory = \(directory ?? plugins)\n\(lines)\n", to: "mistake.properties")
    }

    @Test("The error for an absent plugin names the directories that were searched")
    func oneThatIsAbsentIsSearchedInTheseDirectories() throws {
        let absent = sandbox.path + "/absent"
        let file = try configuration("CertificateProvider = ghost", directory: absent)
        for arguments in [
            ["fetch"], ["fetch", "--provider", "ghost"], ["keygen", "--label", "x", "--key", "ghost:"],
        ] {
            // The key store is searched by a file that is valid.
            let file = arguments[0] == "keygen" ? try configuration("", directory: absent) : file
            let output = try sandbox.certprov(arguments + ["--config", file]).expect(78)
            #expect(output.stderr.contains("certprov-plugin-ID in \(absent) (missing), "), "\(output)")
        }
    }

    @Test func providersShowsOthersThoughTheConfiguredOneIsUnusable() throws {
        try sandbox.installPlugin("dead", "#!/bin/sh\necho gone >&2\nexit 3\n")
        try sandbox.installPlugin("Upper", "#!/bin/sh\n")
        let file = try configuration("CertificateProvider = dead")
        let fetched = try sandbox.certprov("fetch", "--config", file)
        #expect(
            fetched.status == 69 && fetched.stderr.contains("status 3")
                && fetched.stderr.contains("\(plugins)/certprov-plugin-dead") && !fetched.stderr.contains("dead: The"),
            "\(fetched)")
        for variables in [[:], ["CERTPROV_CONFIG": file]] {
            let arguments = ["providers", "--json"] + (variables.isEmpty ? ["--config", file] : [])
            let document = try sandbox.certprov(arguments, with: variables).document("ProviderList")
            let dead = try #require(document["plugins"].array.first { $0["id"].string == "dead" }, "\(document)")
            #expect(dead["error"].string?.contains("gone") == true)
            #expect(document["items"].array.contains { $0["id"].string == "pkcs12" })
            #expect(document["warnings"].array.contains { $0.string?.contains("certprov-plugin-Upper") == true })
        }
        let checked = try sandbox.certprov("check", "--config", try configuration(""))
        #expect(checked.stdout.contains("certprov-plugin-Upper is not used"), "\(checked)")
        #expect(checked.stdout.contains("plugin dead") && checked.stdout.contains("gone"), "\(checked)")
    }

    @Test func aMessageThatBreaksTheProtocolLeadsToTheVerification() throws {
        try install("odd", describing: "", answering: #"{"id":%s,"result":7}"#)
        let output = try sandbox.certprov("fetch", "--config", try configuration("CertificateProvider = odd")).expect(
            76)
        #expect(output.stderr.contains("certprov plugin verify \(plugins)/certprov-plugin-odd"), "\(output)")
    }

    @Test("A mistake of a plugin's server does not lead there") func aMistakeOfAServer() throws {
        let answer = #"{"id":%s,"error":{"code":"protocolError","message":"The server is wrong."}}"#
        try install("odd", describing: "", answering: answer)
        let output = try sandbox.certprov("fetch", "--config", try configuration("CertificateProvider = odd")).expect(
            76)
        #expect(output.stderr.contains("The server is wrong.") && !output.stderr.contains("plugin verify"), "\(output)")
    }

    @Test func aPluginThatDoesNotAnswerLeadsToItsTrace() throws {
        // A notice is not an answer, and of an unknown kind it means nothing.
        try install("mute", describing: "", answering: #"{"notice":"of-%s"}"#)
        let properties = "CertificateProvider = mute\nCertificateProvider.mute.timeout = 1"
        let output = try sandbox.certprov("fetch", "--config", try configuration(properties)).expect(75)
        #expect(
            output.stderr.contains("Raise 'timeout', or look at its messages with 'certprov plugin trace'."),
            "\(output)")
    }

    @Test func theTimeToTryAgainIsInTheJSON() throws {
        let error = #"{"code":"pending","message":"The request is not approved yet.","retryAfter":90}"#
        try install("slow", describing: "", answering: #"{"id":%s,"error":\#(error)}"#)
        let file = try configuration("CertificateProvider = slow")
        try sandbox.certprov("fetch", "--force", "--json", "--config", file).expect(75, stderr: #""retryAfter":90"#)
    }

    @Test func aMissingParameterNamesTheFile() throws {
        try install(
            "needs",
            describing: #","parameters":[{"name":"place","type":"path","required":true,"summary":"A place."}]"#,
            answering: #"{"id":%s,"result":{}}"#)
        let file = try configuration("CertificateProvider = needs")
        try sandbox.certprov("fetch", "--config", file).expect(78, stderr: file, "'place'")
    }

    @Test("The parameter 'directory' of a plugin is not taken for a directory of ACME")
    func aDirectoryOfAPlugin() throws {
        try install(
            "books",
            describing:
                #","parameters":[{"name":"directory","type":"server-url","required":true,"summary":"A server."}]"#,
            answering: #"{"id":%s,"result":{}}"#)
        let server = try Subprocess(
            ["python3", "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", sandbox.path, "0"],
            environment: ["PATH": "/usr/bin:/bin"])
        defer { server.stop() }
        let port = try #require(server.readLine()?.split(separator: " ").dropFirst(5).first)
        let file = try configuration(
            "CertificateProvider = books\nCertificateProvider.books.directory = http://127.0.0.1:\(port)/")
        let output = try sandbox.certprov("check", "--config", file)
        #expect(output.stdout.contains("books directory 127.0.0.1:\(port)  reachable"), "\(output)")
    }

    @Test("Before the first fetch, list shows its heading and where it has looked")
    func listBeforeTheFirstFetchSaysWhereItLooked() throws {
        try install("empty", describing: "", answering: #"{"id":%s,"result":{}}"#)
        let file = try configuration("CertificateProvider = empty")
        let output = try sandbox.certprov("list", "--config", file)
        #expect(output.status == 0 && output.stdout.hasPrefix("PROVIDER "), "\(output)")
        #expect(
            output.stderr.contains("\(plugins)/certprov-plugin-empty") && output.stderr.contains("certprov fetch"),
            "\(output)")
        let document = try sandbox.certprov("list", "--json", "--config", file).document("IdentityList")
        #expect(document["items"].array.isEmpty && document["warnings"].array.count == 1, "\(document)")
    }

    @Test("A blank in place of pins or trust anchors is not the same as none", arguments: ["pins", "certificate-file"])
    func aBlankTrustIsRefused(kind: String) throws {
        try install(
            "trusts", describing: #","parameters":[{"name":"trust","type":"\#(kind)","summary":"Whom it trusts."}]"#,
            answering: #"{"id":%s,"result":{}}"#)
        let file = try configuration("CertificateProvider = trusts\nCertificateProvider.trusts.trust =")
        try sandbox.certprov("fetch", "--config", file).expect(78, stderr: "'trust' must not be empty")
    }

    @Test func aNameThatNoPluginMayHaveIsRefusedAtOnce() throws {
        for name in ["store", "pkcs11", "pkcs12", "mdm", "Upper", "_x"] {
            try sandbox.certprov("plugin", "new", "--language", "sh", "--", name).expect(64, about: name)
        }
        #expect(try sandbox.certprov("plugin", "trace", "--help").stdout.contains("USAGE: certprov plugin trace"))
    }
}
