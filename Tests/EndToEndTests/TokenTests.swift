import Foundation
import Glibc
import TestSupport
import Testing

/// The command with an identity on a token of SoftHSM.
@Suite struct TokenTests {
    private static let library = SoftToken.library
    private let pin = "tok3n-PIN-58"
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        _ = try SoftToken(in: sandbox, "service", pin: pin)
        try sandbox.shell(
            """
            set -eu; fixtures=$1; pin=$2; library=$3
            for name in ec rsa; do
                id=$(printf %s $name | od -An -tx1 | tr -d ' ')
                openssl pkey -in $fixtures/$name.key -out "$HOME/$name.key"
                softhsm2-util --import "$HOME/$name.key" --token service --label $name --id $id --pin "$pin"
                openssl x509 -in $fixtures/$name.pem -outform der -out "$HOME/$name.der"
                pkcs11-tool --module $library --token-label service --login --pin "$pin" \\
                    --write-object "$HOME/$name.der" --type cert --label $name --id $id
            done
            openssl x509 -in $fixtures/intermediate.pem -outform der -out "$HOME/issuer.der"
            pkcs11-tool --module $library --token-label service --login --pin "$pin" \\
                --write-object "$HOME/issuer.der" --type cert --label issuer --id f0
            """, Fixtures.path(""), pin, Self.library, with: variables
        ).require()
    }

    private var variables: [String: String] { ["SOFTHSM2_CONF": sandbox.path + "/softhsm2.conf"] }

    private func options(_ object: String? = "ec", pin: String? = "pin") -> [String] {
        options(uri: "pkcs11:token=service" + (object.map { ";object=\($0)" } ?? ""), pin: pin)
    }

    private func options(uri: String, pin: String? = nil, module: String = library) -> [String] {
        ["--provider", "pkcs11", "--set", "uri=\(uri)", "--set", "module-path=\(module)"]
            + (pin.map { ["--set", "pin-source=file:\(sandbox.path)/\($0)"] } ?? [])
    }

    private func certprov(_ arguments: String..., options: [String]) throws -> Output {
        try sandbox.certprov(arguments + options, with: variables)
    }

    /// Provider and key store, as they are in a plugin.
    @Test(.enabled(if: BuiltCommand.isPlugged)) func thePluginKeepsTheContracts() throws {
        let plugin = sandbox.path + "/plugins/certprov-plugin-pkcs11"
        let output = try sandbox.certprov(
            [
                "plugin", "verify", plugin, "--key", "pkcs11:token=service", "--key-pin-source",
                "file:\(sandbox.path)/pin",
            ]
                + options("ec").dropFirst(2), with: variables
        ).expect()
        #expect(output.stdout.contains("key store pkcs11: rsa2048") && output.stdout.contains("provider: listing"))
    }

    @Test func listShowsKeysWithTheirURIs() throws {
        let list = try certprov("list", "--json", options: options(nil)).expect(stderr: "").document("IdentityList")
        #expect(Set(list["items"].array.map { $0["alias"].string }) == ["ec", "rsa"])
        for item in list["items"].array {
            #expect(item["key"]["location"].string == "token" && item["key"]["exportable"].bool == false, "\(item)")
            #expect(item["key"]["uri"].string?.contains("token=service") == true, "\(item)")
        }
        // The issuer's certificate is not an identity.
        let others = list["otherObjects"].array.compactMap(\.string)
        #expect(others.count == 1 && others[0].contains("object=issuer;type=cert"), "\(others)")
        let table = try certprov("list", options: options(nil))
        #expect(table.stdout.hasSuffix("\n\nOTHER OBJECTS\n\(others.joined())\n"), "\(table)")
        #expect(table.stdout.split(separator: "\n").count == 5 && table.stdout.contains(" token "), "\(table)")
        #expect(table.stdout.contains("STATUS  URI\n") && table.stdout.contains("  pkcs11:"), "\(table)")
    }

    @Test func listWithoutPINSaysWhatALoginWouldAdd() throws {
        let output = try certprov("list", options: options(nil, pin: nil))
        #expect(output.status == 0 && output.stdout.split(separator: "\n").count == 5, "\(output)")
        #expect(output.stderr.contains("'service'") && output.stderr.contains("'pin-source'"), "\(output)")
    }

    @Test func fetchWritesTheChainAndNeverTheKey() throws {
        let out = sandbox.path + "/out"
        let output = try certprov("fetch", "--json", "--out", out, options: options()).expect(stderr: "")
        #expect(try output.document("Identity")["identity"]["key"]["location"].string == "token")
        let files = try FileManager.default.contentsOfDirectory(atPath: out + "/current")
        #expect(Set(files) == ["certificate.pem", "chain.pem"])

        let refused = try certprov("fetch", "--json", "--export-key", "--out", out, options: options())
        let message = try refused.expectFailure("unsupportedAlgorithm", status: 65)
        #expect(message.contains("cannot leave"), "\(message)")
        #expect(Set(try FileManager.default.contentsOfDirectory(atPath: out + "/current")) == Set(files))
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"], ["ec", "rsa"]) func connect(version: String, object: String) throws {
        let server = try TLSServer(in: sandbox, ["-Verify", "3", "-CAfile", Fixtures.path("ca.pem"), version])
        let output = try certprov(
            "connect", "localhost:\(server.port)", "--trust-anchors", server.certificate, "--json",
            options: options(object)
        ).expect()
        let document = try output.document("Connection")
        #expect(document["tlsVersion"].string == (version == "-tls1_2" ? "TLS 1.2" : "TLS 1.3"))
        #expect(["completed", "unopposed"].contains(document["clientAuthentication"].string))
        #expect(document["identity"]["key"]["location"].string == "token")
    }

    @Test func explainSaysWhichProvider() throws {
        try certprov("explain", options: options()).expect(stdout: "pkcs11")
    }

    @Test func providersDocumentsTheParameters() throws {
        let output = try sandbox.certprov("providers")
        for name in ["uri", "module-path", "pin-source", "login", "delete-objects", "timeout"] {
            #expect(output.stdout.contains(name), "\(name): \(output)")
        }
    }

    @Test func eachTroubleHasItsStatus() throws {
        try sandbox.write("tok3n-PIN-59\n", to: "wrong")
        func status(_ code: String, _ status: Int32, _ options: [String]) throws {
            try certprov("fetch", "--json", options: options).expectFailure(code, status: status)
        }
        try status("configurationInvalid", 78, options(nil))
        try status("notFound", 66, options("nothing"))
        try status("interactionRequired", 77, options(pin: nil))
        try status("fileNotFound", 66, options(pin: "absent"))
        try status("pinIncorrect", 77, options(pin: "wrong"))
        try status("tokenNotPresent", 69, options(uri: "pkcs11:token=absent", pin: "pin"))
        try status("fileNotFound", 66, options(uri: "pkcs11:", module: "/nonexistent.so"))
        try status("unavailable", 69, options(uri: "pkcs11:", module: "/etc/passwd"))
        try status("configurationInvalid", 78, options(uri: "pkcs11:slot-id=0"))
        try status("configurationInvalid", 78, options(uri: "pkcs11:?pin-source=|/bin/true"))
    }

    @Test func thePINIsNowhere() throws {
        try sandbox.write("tok3n-PIN-59\n", to: "wrong")
        let inURI = ["--config", try configuration(uri: "pkcs11:token=service;object=ec?pin-value=\(pin)")]
        let misplaced = ["pkcs11:pin-value=\(pin)", "pkcs11:?pin-value=\(pin)%zz"].map { options(uri: $0) }
        let onTheCommandLine = [options(uri: "pkcs11:token=service?pin-value=\(pin)")]
        let device = "client-certificate=pkcs11:token=service?pin-value=\(pin)"
        let refused = try sandbox.certprov(["fetch", "--provider", "mdm", "--set", device])
        #expect(refused.status == 64 && !refused.description.contains("tok3n"), "\(refused)")
        for command in [["list"], ["fetch"], ["fetch", "--force"], ["explain"], ["delete", "--yes"]] {
            for options in [options(), options(pin: "wrong"), inURI] + misplaced + onTheCommandLine {
                for more in [["-v", "-v"], ["--json", "-v", "-v"]] {
                    let output = try sandbox.certprov(command + options + more, with: variables)
                    #expect(output.status != nil && !output.description.contains("tok3n"), "\(command): \(output)")
                }
            }
        }
        for name in try FileManager.default.subpathsOfDirectory(atPath: sandbox.store) {
            guard let bytes = FileManager.default.contents(atPath: sandbox.store + "/" + name) else { continue }
            #expect(bytes.range(of: Data("tok3n".utf8)) == nil, "\(name)")
        }
    }

    @Test func aPINInTheURIIsReported() throws {
        let options = ["--config", try configuration(uri: "pkcs11:token=service;object=ec?pin-value=\(pin)")]
        try certprov("list", options: options).expect(stderr: "pin-value")
        let json = try certprov("list", "--json", options: options).expect(stderr: "")
        let warnings = try json.document("IdentityList")["warnings"].array.compactMap(\.string)
        #expect(warnings.contains { $0.contains("pin-value") }, "\(warnings)")
    }

    /// All users of the host could read it there.
    @Test func aPINOnTheCommandLineIsRefused() throws {
        let uri = "pkcs11:token=service;object=ec?pin-value=\(pin)"
        for options in [options(uri: uri), ["--uri", uri, "--set", "module-path=\(Self.library)"]] {
            try certprov("list", options: options).expect(64, stderr: "pin-source")
        }
    }

    private func configuration(uri: String) throws -> String {
        try sandbox.write(
            """
            CertificateProvider = pkcs11
            CertificateProvider.pkcs11.uri = \(uri)
            CertificateProvider.pkcs11.module-path = \(Self.library)

            """, to: "token.properties")
    }
}
