import Foundation
import Glibc
import TestSupport
import Testing

/// The sources of passwords.
@Suite struct SecretSourceTests {
    private let sandbox: Sandbox
    private let client = Fixtures.path("ec.p12")

    init() throws { sandbox = try Sandbox() }

    private func list(_ source: String, with variables: [String: String] = [:]) throws -> Output {
        try sandbox.certprov(["list", "--json"] + adHoc(client, password: source), with: variables)
    }

    private func expectFound(_ output: Output, sourceLocation: SourceLocation = #_sourceLocation) throws {
        #expect(output.status == 0 && output.stderr.isEmpty, "\(output)", sourceLocation: sourceLocation)
        #expect(try output.document("IdentityList")["items"].array.count == 1, sourceLocation: sourceLocation)
    }

    /// `list` prints its document even when nothing was found; the error is in it and on stderr.
    private func expectError(
        _ output: Output, _ code: String, status: Int32, sourceLocation: SourceLocation = #_sourceLocation
    ) throws -> String {
        #expect(output.status == status, "\(output)", sourceLocation: sourceLocation)
        let errors = try output.errorDocuments()
        #expect(errors.map { $0["code"].string } == [code], "\(output)", sourceLocation: sourceLocation)
        return errors.first?["message"].string ?? ""
    }

    @Test(arguments: ["", "\n", "\r\n"]) func aFileOfTheOwnersAlone(ending: String) throws {
        for mode: mode_t in [0o600, 0o400, 0o700] {
            let path = try sandbox.write(Fixtures.password + ending, to: "secret \(mode)", mode: mode)
            try expectFound(list("file:\(path)"))
        }
    }

    @Test(arguments: ["\n\n", " ", "\t\n"]) func onlyOneLineEndingIsTakenOff(ending: String) throws {
        let path = try sandbox.write(Fixtures.password + ending, to: "secret")
        _ = try expectError(list("file:\(path)"), "wrongPassword", status: 77)
    }

    @Test(arguments: [0o644, 0o645, 0o604, 0o660, 0o610, 0o602]) func aFileOpenToOthersIsRefused(mode: mode_t) throws {
        let path = try sandbox.write(Fixtures.password, to: "secret", mode: mode)
        let message = try expectError(list("file:\(path)"), "configurationInvalid", status: 78)
        #expect(
            message.contains("mode \(String(mode, radix: 8))") && message.contains("chmod 600 \(path)"), "\(message)")
        // The command that the message gives is the remedy.
        let command = try #require(message.components(separatedBy: "run: ").last)
        #expect(try sandbox.shell(command).status == 0)
        try expectFound(list("file:\(path)"))
    }

    @Test("A missing, too large or special file is refused as a secret's source")
    func whatIsNoSecretFileIsRefused() throws {
        _ = try expectError(list("file:/nonexistent"), "fileNotFound", status: 66)
        chmod(sandbox.path, 0o700)
        _ = try expectError(list("file:\(sandbox.path)"), "configurationInvalid", status: 78)
        let large = try sandbox.write(repeatElement(UInt8(ascii: "x"), count: 70_000), to: "large")
        #expect(try expectError(list("file:\(large)"), "configurationInvalid", status: 78).contains("64 KiB"))
        for source in ["file:", "fd:", "fd:x", "fd:-1", "systemd:../x", "password", "exec:true"] {
            try list(source).expectFailure("configurationInvalid", status: 78)
        }
    }

    @Test func aPipe() throws {
        let output = try sandbox.shell(
            """
            cd "$HOME/.."; mkfifo -m 600 secret
            (printf '%s\\n' "$P12_PASSWORD" >secret) &
            "$CERTPROV" list --json --provider pkcs12 --set "path=$1" --set "password-source=file:$PWD/secret"
            """, client)
        try expectFound(output)
    }

    @Test func anEnvironmentVariable() throws {
        try expectFound(list("env:P12_PASSWORD"))
        let message = try expectError(list("env:UNSET_VARIABLE"), "configurationInvalid", status: 78)
        #expect(message.contains("UNSET_VARIABLE"))
        // Taken as it is.
        _ = try expectError(list("env:PW", with: ["PW": Fixtures.password + "\n"]), "wrongPassword", status: 77)
    }

    /// The same bytes are the same password, wherever they come from.
    @Test func aPasswordThatIsNotUTF8() throws {
        try sandbox.shell(
            #"""
            cd "$HOME/.." && umask 077 && printf 'pa\374wort' >secret && PW=$(cat secret) && export PW && set -e
            openssl pkcs12 -export -inkey "$1/ec.key" -in "$1/ec.pem" -passout file:secret -out latin.p12
            for source in "file:$PWD/secret" env:PW; do
                "$CERTPROV" list --json --provider pkcs12 --set "path=$PWD/latin.p12" --set "password-source=$source"
            done
            """#, Fixtures.path("")
        ).expect()
    }

    @Test(arguments: [0, 3, 9]) func aDescriptor(number: Int) throws {
        for command in ["list", "fetch", "explain", "check"] {
            // Each with a store of its own, so that none answers without the password.
            let state = sandbox.path + "/state/\(command)"
            let output = try sandbox.shell(
                """
                printf '%s\\n' "$P12_PASSWORD" | (exec \(number)<&0 "$CERTPROV" \(command) --json --provider pkcs12 \
                    --set "path=$1" --set password-source=fd:\(number))
                """, client, with: ["XDG_STATE_HOME": state])
            #expect(output.status == 0 && !output.stdout.contains("wrongPassword"), "\(command): \(output)")
            #expect(command != "explain" || output.stdout.contains("it finds one identity"), "\(output)")
        }
    }

    @Test func aDescriptorThatIsNotOpenOrEmpty() throws {
        // A program inherits descriptors of the tests.
        let closed = try sandbox.shell(
            "exec 9<&-; \"$CERTPROV\" list --json --provider pkcs12 --set \"path=$1\" --set password-source=fd:9",
            client)
        _ = try expectError(closed, "configurationInvalid", status: 78)
        // Stdin is /dev/null: an empty password, which is the wrong one.
        _ = try expectError(list("fd:0"), "wrongPassword", status: 77)
    }

    @Test func aCredentialOfSystemd() throws {
        mkdir(sandbox.path + "/credentials", 0o700)
        // systemd makes them readable by a group that only its access-control list uses.
        try sandbox.write(Fixtures.password + "\n", to: "credentials/p12", mode: 0o440)
        let variables = ["CREDENTIALS_DIRECTORY": sandbox.path + "/credentials"]
        try expectFound(list("systemd:p12", with: variables))
        _ = try expectError(list("systemd:other", with: variables), "fileNotFound", status: 66)
        #expect(try expectError(list("systemd:p12"), "configurationInvalid", status: 78).contains("LoadCredential=p12"))
    }

    @Test func theStoresKeyAsACredential() throws {
        mkdir(sandbox.path + "/credentials", 0o700)
        let variables = ["CREDENTIALS_DIRECTORY": sandbox.path + "/credentials"]
        let key = try sandbox.write(String(repeating: "k", count: 44) + "\n", to: "credentials/certprov-store-key")
        let fetch = ["fetch", "--json"] + adHoc(client)
        #expect(try sandbox.certprov(fetch, with: variables).status == 0)
        #expect(status(sandbox.store + "/store.key") == nil)
        #expect(try sandbox.certprov(fetch, with: variables).status == 0)
        try sandbox.certprov(fetch).expectFailure("storeReadFailed", status: 74)
        try sandbox.write(String(repeating: "l", count: 44), to: key)
        try sandbox.certprov(fetch, with: variables).expectFailure("storeReadFailed", status: 74)
        try sandbox.write("short", to: key)
        try sandbox.certprov(fetch, with: variables).expectFailure("configurationInvalid", status: 78)
    }

    @Test func aPromptWithoutATerminalNeedsAPerson() throws {
        let arguments = ["--json"] + adHoc(client, password: "prompt")
        try sandbox.certprov(["fetch"] + arguments).expectFailure("interactionRequired", status: 77)
        let message = try expectError(sandbox.certprov(["list"] + arguments), "interactionRequired", status: 77)
        #expect(message.contains("prompt"))
        #expect(status(sandbox.store + "/identities") == nil)
    }
}
