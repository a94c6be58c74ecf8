import Foundation
import Glibc
import TestSupport
import Testing

/// The page on signing requests: both sides by the command, and the caller in Python.
@Suite(.enabled(if: TestLength.hasSeconds)) struct RequestsPageTests {
    private let sandbox: Sandbox
    private let page: Page

    init() throws {
        sandbox = try Sandbox()
        page = try Page("Documentation/SigningRequests.md")
        let properties = try #require(page.blocks("properties").first).replacing("/home/alice", with: sandbox.path)
        try sandbox.shell(
            #"""
            set -e; cd "$1"; umask 077
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 90 -subj /O=Example/CN=CA -keyout ca.key -out ca.pem
            openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /O=Example/CN=alice -keyout signer.key -out signer.csr
            printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=emailProtection\n' >ext
            openssl x509 -req -in signer.csr -CA ca.pem -CAkey ca.key -days 30 -extfile ext -out signer.pem
            openssl rand -hex 32 >bank.key
            openssl rand -out challenge 64
            printf '%s' "$2" >contract.pdf
            mkdir -p "$XDG_CONFIG_HOME/certprov"
            printf '%s\nSigning.client.1.approval = unattended\n' "$3" >"$XDG_CONFIG_HOME/certprov/clienthub.properties"
            """#, sandbox.path, TestPDF.text, properties
        ).require()
    }

    @Test func bothSidesByTheCommand() throws {
        try sandbox.expect(
            page.steps, after: "cp \(sandbox.path)/bank.key \(sandbox.path)/ca.pem \(sandbox.path)/contract.pdf .")
        for file in ["signature", "signed.pdf", "person.pem"] {
            #expect(FileManager.default.fileExists(atPath: "\(sandbox.path)/home/\(file)"))
        }
    }

    @Test("The drop-in of the page gives the user's service a property file of its own")
    func theDropIn() throws {
        let runtime = sandbox.path + "/run"
        mkdir(runtime, 0o700)
        let dropIn = try #require(page.blocks("ini").first).split(separator: "\n")
        let unit = try Page("Scripts/systemd/certprov-requests.service").text
        let start = try #require(unit.split(separator: "\n").first { $0.hasPrefix("ExecStart=@bindir@/certprov ") })
        let setting = try #require(dropIn.first { $0.hasPrefix("Environment=CERTPROV_CONFIG=") })
        let file = String(setting).replacing("Environment=CERTPROV_CONFIG=%E", with: sandbox.path + "/config")
        let usual = sandbox.path + "/config/certprov/clienthub.properties"
        try #require(rename(usual, file) == 0)
        // The file that the commands find by themselves has no clients.
        try sandbox.write("CertificateProvider = pem\nCertificateProvider.pem.certificate = /nosuch\n", to: usual)
        let signer = try sandbox.start(
            [BuiltCommand.path] + start.split(separator: " ").dropFirst().map(String.init),
            with: ["XDG_RUNTIME_DIR": runtime, "CERTPROV_CONFIG": file])
        try signer.waitUntil { RequestsServeTests.takesConnections(runtime + "/certprov/requests.sock") }
        try sandbox.shell(
            #"""
            cd "$1" && "$CERTPROV" requests send challenge --client-id 1 --key-source file:bank.key --service-name Loans \
                --trust-anchors ca.pem --out signature
            """#, sandbox.path, with: ["XDG_RUNTIME_DIR": runtime]
        ).expect(stdout: "CN=alice")
        signer.kill()
    }

    @Test func theCallerInPython() throws {
        let runtime = sandbox.path + "/run"
        try FileManager.default.createDirectory(
            atPath: runtime, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let signer = try sandbox.start([BuiltCommand.path, "requests", "serve"], with: ["XDG_RUNTIME_DIR": runtime])
        defer { signer.kill() }
        try signer.waitUntil { RequestsServeTests.takesConnections(runtime + "/certprov/requests.sock") }
        try sandbox.write(try #require(page.blocks("python").first).utf8, to: "ask.py")
        let verified = try sandbox.shell(
            #"""
            set -e; cd "$1"
            python3 ask.py challenge bank.key
            openssl x509 -inform DER -in certificate -noout -pubkey >key.pub
            openssl dgst -sha256 -verify key.pub -signature signature challenge
            openssl verify -CAfile ca.pem certificate
            # The same challenge again, which no person approves.
            ! python3 ask.py challenge bank.key 2>refusal
            cat refusal
            """#, sandbox.path, with: ["XDG_RUNTIME_DIR": runtime]
        ).expect(stdout: "Verified OK")
        #expect(verified.stdout.contains("validate-request-error"), "\(verified)")
    }
}
