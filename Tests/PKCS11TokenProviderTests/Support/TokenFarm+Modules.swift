import CertificateProviding
import Foundation
import Glibc
import TestSupport

extension TokenFarm {
    /// Objects on SoftHSM tokens beside those that every module has.
    enum SoftHSMToken: String, CaseIterable {
        /// Two identities.
        case ambiguous
        /// A certificate without a key, a key without a certificate, and a certificate beside the key of another.
        case halves
        /// Two certificates for one key.
        case renewed
        /// Its directory is moved away.
        case moving
        /// Two tokens of one label.
        case twin
    }

    func makeSoftHSM() throws {
        try write(
            "directories.tokendir = \(file("softhsm"))\nobjectstore.backend = file\nlog.level = ERROR\n",
            to: "softhsm2.conf")
        setenv("SOFTHSM2_CONF", file("softhsm2.conf"), 1)
        try configure(.softhsm, "module: \(TestModule.softhsm.library)")
        for module in TestModule.softHSMs {
            for token in TestToken.allCases {
                let label = module.label(token)
                try makeSoftHSMToken(label)
                for (index, kind) in (token == .main ? module.kinds : [module.kinds[0]]).enumerated() {
                    try importKey(kind.rawValue, id: "0\(index + 1)", on: label)
                    try importCertificate(kind.rawValue, id: "0\(index + 1)", on: label)
                }
                try importCertificate("intermediate", id: "f0", on: label)
            }
        }
        for token in SoftHSMToken.allCases { try makeSoftHSMToken(token.rawValue) }
        for (id, name) in [("a1", "p256"), ("a2", "p384")] {
            try importKey(name, id: id, on: SoftHSMToken.ambiguous.rawValue)
            try importCertificate(name, id: id, on: SoftHSMToken.ambiguous.rawValue)
        }
        try importCertificate("p521", id: "b1", on: SoftHSMToken.halves.rawValue)
        try importKey("p384", id: "b2", on: SoftHSMToken.halves.rawValue)
        try importKey("p256", id: "b3", on: SoftHSMToken.halves.rawValue)
        try importCertificate("p521", id: "b3", on: SoftHSMToken.halves.rawValue)
        try importKey("p256", id: "c1", on: SoftHSMToken.renewed.rawValue)
        try importCertificate("p256", id: "c1", on: SoftHSMToken.renewed.rawValue)
        let renewed = try authority.certify(identity(.p256).key.publicKey.derRepresentation, as: "renewed")
        try write(renewed.derRepresentation, to: "renewed.der")
        try importCertificate("renewed", id: "c1", on: SoftHSMToken.renewed.rawValue)
        for token in [SoftHSMToken.moving, .twin] {
            try importKey("p256", id: "d1", on: token.rawValue)
            try importCertificate("p256", id: "d1", on: token.rawValue)
        }
        // Its twin stays empty: only the serial number tells them apart.
        try makeSoftHSMToken(SoftHSMToken.twin.rawValue)
    }

    func identity(_ kind: TestAuthority.KeyKind) throws -> Identity {
        guard let identity = identities[kind] else { throw Failure(description: "there is no \(kind)") }
        return identity
    }

    private func makeSoftHSMToken(_ label: String) throws {
        try Subprocess.run([
            "softhsm2-util", "--init-token", "--free", "--label", label, "--pin", Self.pin, "--so-pin", Self.soPIN,
        ])
    }

    private func importKey(_ name: String, id: String, on token: String) throws {
        try Subprocess.run([
            "softhsm2-util", "--import", file(name + ".key"), "--token", token, "--label", name, "--id", id, "--pin",
            Self.pin,
        ])
    }

    private func importCertificate(
        _ name: String, id: String, on token: String, of module: TestModule = .softhsm
    ) throws {
        try pkcs11Tool(
            module, token, "--write-object", file(name + ".der"), "--type", "cert", "--id", id, "--label", name)
    }

    /// Runs OpenSC's tool, logged in.
    @discardableResult
    func pkcs11Tool(_ module: TestModule, _ token: String, _ arguments: String...) throws -> [UInt8] {
        try Subprocess.run(
            ["pkcs11-tool", "--module", module.library, "--token-label", token, "--login", "--pin", Self.pin]
                + arguments)
    }
}

extension TokenFarm {
    /// One database a token. Softokn takes its configuration from the arguments of `C_Initialize`.
    func makeNSS() throws {
        try write(Self.pin, to: "nss-pin")
        try write("transport", to: "transport")
        var tokens: [String] = []
        for (index, token) in TestToken.allCases.enumerated() {
            let directory = file("nss-\(token.rawValue)")
            mkdir(directory, 0o700)
            try Subprocess.run(["certutil", "-N", "-d", "sql:\(directory)", "-f", file("nss-pin")])
            for kind in token == .main ? TestModule.nss.kinds : [.p256] {
                let (name, archive) = (kind.rawValue, file(kind.rawValue + ".p12"))
                try Subprocess.run([
                    "openssl", "pkcs12", "-export", "-inkey", file(name + ".key"), "-in", file(name + ".pem"),
                    "-certfile", file("intermediate.pem"), "-name", name, "-passout", "file:" + file("transport"),
                    "-out", archive,
                ])
                try Subprocess.run([
                    "pk12util", "-i", archive, "-d", "sql:\(directory)", "-k", file("nss-pin"), "-w", file("transport"),
                ])
            }
            tokens.append(
                "0x\(index + 4)=[configdir='sql:\(directory)' tokenDescription='\(TestModule.nss.label(token))']")
        }
        try configure(
            .nss, "module: \(TestModule.nss.library)",
            "x-init-reserved: configdir='' flags=noModDB,noCertDB tokens=<\(tokens.joined(separator: " "))>")
    }

    /// A software TPM on a port of its own; its keys are born in it.
    func makeTPM() throws {
        let port = try startTPM()
        setenv("TPM2_PKCS11_STORE", file("tpm"), 1)
        setenv("TPM2_PKCS11_TCTI", "swtpm:port=\(port)", 1)
        setenv("TSS2_LOG", "all+NONE", 0)
        try configure(.tpm, "module: \(TestModule.tpm.library)")
        for (slot, token) in TestToken.allCases.enumerated() {
            let label = TestModule.tpm.label(token)
            let tool = ["pkcs11-tool", "--module", TestModule.tpm.library, "--so-pin", Self.soPIN]
            try Subprocess.run(tool + ["--init-token", "--slot-index", String(slot), "--label", label])
            try Subprocess.run(tool + ["--init-pin", "--login", "--token-label", label, "--pin", Self.pin])
            try makeKeys(on: token, of: .tpm)
        }
        // Some of the tools have left objects and sessions in it, for which it has little room.
        if let pid = Self.process(named: file("swtpm.pid")) { kill(pid, SIGKILL) }
        setenv("TPM2_PKCS11_TCTI", "swtpm:port=\(try startTPM())", 1)
    }

    /// In the namespaces that this process has for itself.
    func makeOpencryptoki() throws {
        let script = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "TokenHosts/opencryptoki").path
        let module = TestModule.opencryptoki
        try Subprocess.run([script, Self.pin, Self.soPIN, module.label(.main)])
        try configure(module, "module: \(module.library)")
        try makeKeys(on: .main, of: module)
    }

    /// Keys that are born in the token, and their certificates.
    private func makeKeys(on token: TestToken, of module: TestModule) throws {
        let label = module.label(token)
        for (index, kind) in (token == .main ? module.kinds : [module.kinds[0]]).enumerated() {
            let (id, name) = ("0\(index + 1)", "\(label)-\(kind.rawValue)")
            try pkcs11Tool(
                module, label, "--keypairgen", "--key-type", kind.toolName, "--id", id, "--label", kind.rawValue)
            let publicKey = file(name + ".pub")
            try pkcs11Tool(module, label, "--read-object", "--type", "pubkey", "--id", id, "--output-file", publicKey)
            let certificate = try authority.certify(
                Array(try Data(contentsOf: URL(filePath: publicKey))), as: kind.rawValue)
            try write(certificate.derRepresentation, to: name + ".der")
            try pkcs11Tool(
                module, label, "--write-object", file(name + ".der"), "--type", "cert", "--id", id, "--label",
                kind.rawValue)
        }
        try importCertificate("intermediate", id: "f0", on: label, of: module)
    }

    private func startTPM() throws -> Int {
        var reason: (any Error)?
        for _ in 0..<50 {
            let port = Int.random(in: 20_000..<30_000)
            // Through Python, which passes on no descriptors: Foundation takes a program for running as long as a
            // child of its own has those that it was given.
            do {
                try Subprocess.run([
                    "python3", "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))", "swtpm",
                    "socket", "--tpm2", "--tpmstate", "dir=" + file("swtpm"), "--server",
                    "type=tcp,port=\(port),disconnect", "--ctrl", "type=tcp,port=\(port + 1)", "--flags",
                    "not-need-init,startup-clear", "--daemon", "--pid", "file=" + file("swtpm.pid"),
                ])
                return port
            } catch { reason = error }
        }
        throw Failure(description: "swtpm does not start: \(String(describing: reason))")
    }
}

extension TestAuthority.KeyKind {
    /// The name for pkcs11-tool.
    fileprivate var toolName: String {
        switch self {
        case .p256: "EC:prime256v1"
        case .p384: "EC:secp384r1"
        case .p521: "EC:secp521r1"
        case .rsa2048: "RSA:2048"
        case .ed25519: "EC:edwards25519"
        }
    }
}
