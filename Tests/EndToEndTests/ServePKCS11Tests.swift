import Foundation
import Glibc
import TestSupport
import Testing

/// The PKCS#11 socket of `certprov serve`, with the tools of GnuTLS and OpenSC, which know nothing of it.
@Suite struct ServePKCS11Tests {
    private let sandbox: Sandbox
    private let module: String
    private var socket: String { sandbox.path + "/run/pkcs11.sock" }
    private var variables: [String: String] {
        ["RUNTIME_DIRECTORY": sandbox.path + "/run", "P11_KIT_SERVER_ADDRESS": "unix:path=\(socket)"]
    }
    private var logged: String { (try? String(contentsOfFile: sandbox.path + "/log", encoding: .utf8)) ?? "" }

    init() throws {
        sandbox = try Sandbox()
        module = try P11KitClient.path()
        for name in ["etc", "run"] { mkdir("\(sandbox.path)/\(name)", 0o700) }
        try sandbox.write("Serve.pkcs11-socket = \(socket)\n", to: "etc/serve.properties")
    }

    private func serve(_ prefix: [String] = [], with more: [String: String] = [:]) throws -> Subprocess {
        let command = prefix + [BuiltCommand.path, "serve", "--directory", sandbox.path + "/etc"]
        let service = try sandbox.start(
            ["sh", "-c", "exec \"$@\" 2>>\(sandbox.path)/log", "sh"] + command, with: variables.merging(more) { $1 })
        try service.waitUntil { try sandbox.certprov("serve", "status", with: variables).stdout.contains("  ready  ") }
        return service
    }

    /// An identity of a file.
    private func configure(_ grant: String) throws {
        try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 30 -subj /CN=web \\
                -keyout web.key -out web.crt 2>/dev/null && chmod 600 web.key
            """, sandbox.path
        ).require()
        try regrant(grant)
    }

    private func regrant(_ grant: String, key: String = "web.key") throws {
        try sandbox.write(
            """
            CertificateProvider = pem
            CertificateProvider.pem.certificate = \(sandbox.path)/web.crt
            CertificateProvider.pem.key = \(sandbox.path)/\(key)
            Serve.allow.1 = \(grant)
            """, to: "etc/web.properties")
    }

    private func p11tool(_ arguments: String..., prefix: [String] = []) throws -> Output {
        try sandbox.run(prefix + ["p11tool", "--provider", module] + arguments, with: variables)
    }

    private func opensc(_ arguments: String...) throws -> Output {
        try sandbox.run(["pkcs11-tool", "--module", module] + arguments, with: variables)
    }

    /// The ids of the private keys, in the order of the token.
    private func keys() throws -> [Substring] {
        try p11tool("--list-privkeys", "--only-urls", "pkcs11:token=certprov").stdout.split(separator: "\n").filter {
            $0.hasPrefix("pkcs11:")
        }
    }

    @Test("p11tool and pkcs11-tool use a key of SoftHSM without its PIN, through a renewal")
    func tokenKey() async throws {
        let token = try SoftToken(in: sandbox, "host", pin: "tok3n-PIN-60")
        let server = try await ESTServer.start("--auth", "basic")
        let file = sandbox.path + "/etc/web.properties"
        func configure(_ renewal: String) throws {
            let new = try sandbox.configure(
                server,
                """
                CertificateProvider.mdm.key = pkcs11:token=host?module-path=\(SoftToken.library)
                CertificateProvider.mdm.key-pin-source = file:\(sandbox.path)/pin
                CertificateProvider.mdm.renew-at = \(renewal)
                Serve.allow.1 = uid:\(geteuid())
                """)[1]
            try #require(rename(new, file) == 0)
        }
        // Half of its time is over.
        try server.directory.write("-5000 5000".utf8, to: "validity")
        try configure("90%")
        let service = try serve(with: token.variables)
        let first = try keys()
        #expect(first.count == 1 && first[0].contains("object=web;type=private"), "\(first)")
        func sign() throws {
            for key in try keys() { try p11tool("--test-sign", String(key)).expect(0, about: logged) }
            try sandbox.write("a message", to: "data")
            try sandbox.shell(
                """
                cd "$1" && id=$(pkcs11-tool --module "$2" -O --type cert 2>/dev/null | sed -n 's/^ *ID: *//p' | head -n 1) &&
                openssl dgst -sha256 -binary data >digest &&
                pkcs11-tool --module "$2" --read-object --type cert --id "$id" --output-file cert.der &&
                openssl x509 -inform der -in cert.der -pubkey -noout >key.pem &&
                pkcs11-tool --module "$2" --sign --mechanism ECDSA --id "$id" --signature-format openssl \\
                    --input-file digest --output-file sig && openssl dgst -sha256 -verify key.pem -signature sig data
                """, sandbox.path, module, with: variables
            ).expect(0, stdout: "Verified OK")
        }
        try sign()
        unlink(server.directory["validity"])
        try configure("40%")
        service.send(SIGHUP)
        try service.waitUntil { try keys() != first }
        #expect(try keys().count == 1)
        try sign()
        // The old pair is there by its id.
        try p11tool("--test-sign", String(first[0])).expect(0, about: logged)
        // No caller can use a PIN, try one, or change anything.
        try opensc("--login", "--pin", "tok3n-PIN-60", "-O").expect(1, stderr: "CKR_USER_PIN_NOT_INITIALIZED")
        try opensc("--login", "--pin", "wrong", "-O").expect(1, stderr: "CKR_USER_PIN_NOT_INITIALIZED")
        try opensc("--keypairgen", "--key-type", "EC:prime256v1").expect(1, stderr: "CKR_TOKEN_WRITE_PROTECTED")
        let slots = try sandbox.run(["pkcs11-tool", "--module", SoftToken.library, "-L"], with: token.variables).stdout
        #expect(!slots.contains("count low"), "\(slots)")
        service.send(SIGTERM)
        #expect(service.wait().status == 0, "\(logged)")
        #expect(!FileManager.default.fileExists(atPath: socket))
    }

    @Test(
        "A key in a TPM signs by each mechanism, and goes on when the TPM was killed",
        .enabled(if: TestLength.hasSeconds), arguments: ["p256", "rsa2048"])
    func tpmKey(type: String) throws {
        let tpm = try SoftwareTPM()
        let settings = try sandbox.installTPMPlugin(tpm.tcti)
        let plain = try sandbox.write(settings, to: "tpm.properties")
        let request = sandbox.path + "/web.csr"
        let made = try sandbox.certprov(
            "keygen", "--key", "tpm:", "--key-type", type, "--subject", "CN=web", "--out", request, "--config", plain
        ).expect()
        let certificate = try sandbox.issue(request, to: "web.crt", serial: 61)
        try sandbox.write(
            settings
                + """
                CertificateProvider = pem
                CertificateProvider.pem.certificate = \(certificate)
                CertificateProvider.pem.key = \(made.stdout.trimmingCharacters(in: .newlines))
                Serve.allow.1 = uid:\(geteuid())
                """, to: "etc/web.properties")
        let service = try serve()
        try service.waitUntil { try keys().count == 1 }
        func sign() throws -> Output {
            let signed = try p11tool("--test-sign", String(try #require(try keys().first)))
            guard signed.status == 0 else { return signed }
            return try sandbox.shell(Self.signEachWay, sandbox.path, module, type, with: variables)
        }
        try sign().expect(0, about: logged)
        // Between two calls, and during some.
        let load = try sandbox.start(
            [
                "sh", "-c", "until [ -e \"$1\" ]; do p11tool --provider \"$2\" --test-sign \"$3\"; done", "sh",
                sandbox.path + "/enough", module, String(try #require(try keys().first)),
            ], with: variables)
        for _ in 0..<3 {
            tpm.kill()
            #expect(try sign().status != 0)
            try tpm.start()
        }
        try sandbox.write("", to: "enough")
        load.wait()
        try sign().expect(0, about: logged)
        service.send(SIGTERM)
        #expect(service.wait().status == 0, "\(logged)")
        #expect(try tpm.leftovers().isEmpty)
    }

    /// pkcs11-tool signs by each mechanism of a key, with each hash; OpenSSL verifies.
    private static let signEachWay = #"""
        set -e; cd "$1"; module=$2
        openssl x509 -in web.crt -noout -pubkey >key.pem
        id=$(openssl pkey -pubin -in key.pem -outform der | openssl dgst -sha1 -r | cut -c 1-40)
        printf 'a message' >data
        sign() { # mechanism, input, options of openssl
            pkcs11-tool --module "$module" --sign --mechanism "$1" --id "$id" --signature-format openssl --input-file "$2"                 --output-file sig ${pss:+--hash-algorithm $pss}
            shift 2
            openssl dgst "$@" -verify key.pem -signature sig data
        }
        if [ "$3" = p256 ]; then
            openssl dgst -sha256 -binary data >digest
            sign ECDSA digest -sha256
            exit
        fi
        for hash in sha256 sha384 sha512; do
            python3 - $hash <<'END'
        import hashlib, sys
        digest = hashlib.new(sys.argv[1], open("data", "rb").read()).digest()
        number = {"sha256": 1, "sha384": 2, "sha512": 3}[sys.argv[1]]
        head = [0x30, len(digest) + 17, 0x30, 13, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, number, 5, 0, 4, len(digest)]
        open("digest", "wb").write(digest)
        open("info", "wb").write(bytes(head) + digest)
        END
            pss= sign RSA-PKCS info -$hash
            pss=$(echo $hash | tr a-z A-Z) sign RSA-PKCS-PSS digest -$hash -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:digest
        done
        """#

    @Test("A socket in a directory that others can change is refused: one of theirs could take its place")
    func openDirectory() throws {
        try configure("uid:\(geteuid())")
        let directory = sandbox.path + "/open"
        try #require(mkdir(directory, 0o700) == 0 && chmod(directory, 0o777) == 0)
        try sandbox.write("Serve.pkcs11-socket = \(directory)/a.sock\n", to: "etc/serve.properties")
        try sandbox.certprov("serve", "--directory", sandbox.path + "/etc", with: variables).expect(
            78, stderr: "Serve.pkcs11-socket")
    }

    @Test("A user without a grant sees nothing, with the reason in the log, and a changed grant counts at once")
    func grants() throws {
        try configure("uid:\(geteuid())")
        let service = try serve()
        try service.waitUntil { try keys().count == 1 }
        #expect(mode(socket) == 0o666)
        if geteuid() == 0 {
            for directory in [sandbox.path, sandbox.path + "/run"] { chmod(directory, 0o755) }
            let other = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"]
            for _ in 0..<3 {
                try p11tool("--list-all", "pkcs11:token=certprov", prefix: other).expect(
                    2, stderr: "No matching objects")
            }
            let lines = logged.split(separator: "\n").filter { $0.contains("caller refused") }
            #expect(lines.count == 1 && lines[0].contains("its user is 65533"), "\(logged)")
        }
        // A grant that is gone counts also where the rest of the file cannot be used.
        for key in ["web.key", "missing.key"] {
            try regrant("uid:54321", key: key)
            service.send(SIGHUP)
            try service.waitUntil { try keys().isEmpty }
            try regrant("uid:\(geteuid())")
            service.send(SIGHUP)
            try service.waitUntil { try keys().count == 1 }
        }
        try regrant("uid:54321")
        service.send(SIGHUP)
        try service.waitUntil { try keys().isEmpty }
        try regrant("uid:\(geteuid())")
        service.send(SIGHUP)
        try service.waitUntil { try keys().count == 1 }
        let status = try sandbox.certprov("serve", "status", "--json", with: variables).document("ServiceStatus")
        #expect(status["sockets"][0]["name"].string == "pkcs11" && status["sockets"][0]["connections"].int == 0)

        // Another path takes a restart.
        try sandbox.write("Serve.pkcs11-socket = \(socket).new\n", to: "etc/serve.properties")
        service.send(SIGHUP)
        try service.waitUntil {
            try sandbox.certprov("serve", "status", with: variables).stdout.contains("restart certprov-serve")
        }
        #expect(try keys().count == 1)
        service.kill()
        _ = service.wait()
        // The file of a process that has ended is replaced; one of another process is not.
        try sandbox.write("Serve.pkcs11-socket = \(socket)\n", to: "etc/serve.properties")
        let next = try serve()
        try next.waitUntil { try keys().count == 1 }
        try sandbox.certprov(
            "serve", "--directory", sandbox.path + "/etc", "--socket", sandbox.path + "/other.sock", with: variables
        ).expect(73, stderr: "Serve.pkcs11-socket")
        #expect(try keys().count == 1)
        next.send(SIGTERM)
        #expect(next.wait().status == 0)
    }

    /// Signs, waits for a line, and signs again by the same handle. Prints the size of the signature, or the return code.
    private static let signer = """
        import socket, struct, sys
        one = socket.socket(socket.AF_UNIX)
        one.connect(sys.argv[1])
        one.sendall(b"\\0")
        received = one.makefile("rb")
        received.read(1)
        def array(data): return b"\\1" + struct.pack(">I", len(data)) + data
        def call(function, types, rest):
            body = struct.pack(">II", function, len(types)) + types + rest
            one.sendall(struct.pack(">III", 1, 0, len(body)) + body)
            body = received.read(struct.unpack(">III", received.read(12))[2])
            function, size = struct.unpack(">II", body[:8])
            return function, body[8 + size:]
        call(1, b"ayyay", array(b"PRIVATE-GNOME-KEYRING-PKCS11-PROTOCOL-V-1") + b"\\0" + array(b"\\0"))
        session = call(10, b"uu", struct.pack(">QQ", 0, 4))[1]
        # CKA_CLASS = CKO_PRIVATE_KEY.
        call(26, b"uaA", session + struct.pack(">IIBIQ", 1, 0, 1, 8, 3))
        key = call(27, b"ufu", session + struct.pack(">I", 1))[1][-8:]
        while True:
            call(42, b"uMu", session + struct.pack(">II", 0x1041, 0xffffffff) + key)
            function, rest = call(43, b"uayfy", session + array(bytes(32)) + struct.pack(">I", 100))
            print(len(rest) - 5 if function else "code %x" % struct.unpack(">Q", rest), flush=True)
            if not sys.stdin.readline(): break
        """

    @Test("A program that loses its grant between two signatures gets no further one")
    func lostGrant() throws {
        try configure("uid:\(geteuid())")
        let service = try serve()
        try service.waitUntil { try keys().count == 1 }
        let signer = try Subprocess(["/usr/bin/python3", "-c", Self.signer, socket])
        #expect(signer.readLine() == "64")
        try #require(signer.writeLine(""))
        #expect(signer.readLine() == "64")
        try regrant("uid:54321")
        service.send(SIGHUP)
        try service.waitUntil { try keys().isEmpty }
        try #require(signer.writeLine(""))
        // CKR_KEY_HANDLE_INVALID, and CKR_OPERATION_NOT_INITIALIZED of the second call.
        #expect(signer.readLine() == "code 91")
        #expect(logged.contains("caller refused"), "\(logged)")
        service.send(SIGTERM)
        #expect(service.wait().status == 0)
    }

    @Test("systemd passes the socket by its name, and its file stays")
    func passedSocket() throws {
        try configure("uid:\(geteuid())")
        try sandbox.write("", to: "etc/serve.properties")
        let passing = """
            import os, socket, sys
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(sys.argv[1])
            listener.listen()
            os.dup2(os.dup(listener.fileno()), 3)
            os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="pkcs11")
            os.execv(sys.argv[2], sys.argv[2:])
            """
        let service = try serve(["/usr/bin/python3", "-c", passing, socket])
        try service.waitUntil { try keys().count == 1 }
        service.send(SIGTERM)
        #expect(service.wait().status == 0, "\(logged)")
        #expect(FileManager.default.fileExists(atPath: socket))
    }
}
