import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// `certprov connect` against OpenSSL's server.
@Suite struct ConnectTests {
    private let sandbox: Sandbox

    init() throws {
        sandbox = try Sandbox()
        try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout server.key \
                -out server.pem -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost &&
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout address.key \
                -out address.pem -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1,IP:::1
            """, sandbox.path
        ).require()
    }

    /// Runs `body` with the port of a server that has `options`.
    private func withServer<T>(_ options: String..., body: (String) throws -> T) throws -> T {
        let server = try TLSServer(in: sandbox, options)
        return try withExtendedLifetime(server) { try body(server.port) }
    }

    /// How a server ends a connection, and how many session tickets it has sent by then (RFC 8446, section 4.6.1).
    struct Ending: Sendable, CustomTestStringConvertible {
        var testDescription: String { "\(end) after \(tickets) tickets, \(version)" }
        var end: String
        var tickets = 0
        var version = "TLSv1_3"
        var acceptance: String?
    }

    /// Python's `ssl` is OpenSSL, which can be told when to close.
    @Test(
        "Only tickets and close_notify show that the server has not refused the certificate",
        arguments: [
            Ending(end: "close_notify", acceptance: "unopposed"),
            Ending(end: "close_notify", tickets: 2, acceptance: "completed"),
            Ending(end: "close_notify", version: "TLSv1_2", acceptance: "completed"),
            Ending(end: "close", version: "TLSv1_2", acceptance: "completed"), Ending(end: "close"),
            Ending(end: "close", tickets: 2, acceptance: "completed"),
        ])
    func onlyAnOrderlyEndIsNoRefusal(ending: Ending) throws {
        let script = """
            import socket, ssl, sys
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = context.maximum_version = ssl.TLSVersion[sys.argv[4]]
            context.load_cert_chain("server.pem", "server.key")
            context.load_verify_locations(sys.argv[1])
            context.verify_mode = ssl.CERT_REQUIRED
            context.num_tickets = int(sys.argv[3])
            listener = socket.create_server(("127.0.0.1", 0))
            print(f"ACCEPT 127.0.0.1:{listener.getsockname()[1]}", flush=True)
            connection = context.wrap_socket(listener.accept()[0], server_side=True)
            connection.unwrap() if sys.argv[2] == "close_notify" else connection.close()
            """
        let server = try TLSServer(
            in: sandbox,
            command: [
                "/usr/bin/python3", "-c", script, Fixtures.path("ca.pem"), ending.end, String(ending.tickets),
                ending.version,
            ])
        let output = try withExtendedLifetime(server) { try connect(server.port, "--json") }
        if let acceptance = ending.acceptance {
            #expect(output.status == 0, "\(output)")
            #expect(try output.document("Connection")["clientAuthentication"].string == acceptance)
        } else {
            let message = try output.expectFailure("rejected", status: 77)
            #expect(message.contains("closed the connection without giving a reason"))
        }
    }

    private func connect(_ port: String, _ more: String..., anchors: String? = nil) throws -> Output {
        try sandbox.certprov(
            ["connect", "localhost:\(port)", "--trust-anchors", anchors ?? sandbox.path + "/server.pem"]
                + adHoc(Fixtures.path("ec.p12")) + more)
    }

    @Test("A trust anchor that is not a CA's is said, beside the refusal")
    func anAnchorOfALeaf() throws {
        let leaf = try sandbox.write(try TestAuthority().issue("leaf").certificate.pemRepresentation, to: "leaf.pem")
        let output = try withServer { port in try connect(port, anchors: leaf) }
        output.expect(76, stderr: "' is not a CA's, so that no chain leads to it", "does not lead to a trust anchor")
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func showsWhatWasNegotiated(version: String) throws {
        let ca = Fixtures.path("ca.pem")
        let output = try withServer("-Verify", "3", "-verify_return_error", "-CAfile", ca, version) { port in
            try connect(port, "--json")
        }
        #expect(output.status == 0, "\(output)")
        let document = try output.document("Connection")
        #expect(document["tlsVersion"].string == (version == "-tls1_2" ? "TLS 1.2" : "TLS 1.3"))
        #expect(["completed", "unopposed"].contains(document["clientAuthentication"].string))
        #expect(document["serverCertificate"]["subject"].string == "CN=localhost")
    }

    @Test("A pin counts beside the CA, or instead of it; the name counts with both")
    func pins() throws {
        let (own, foreign) = (sandbox.path + "/server.pem", Fixtures.path("ca.pem"))
        try withServer { port in
            let pin = try #require(
                try connect(port, "--json").document("Connection")["serverCertificate"]["pin"].string)
            let other = "sha256/" + String(repeating: "A", count: 43) + "="
            try connect(port, "--pin", "\(other), \(pin)", anchors: own).expect()
            try connect(port, "--pin", other, anchors: own).expect(76, stderr: "no pin matches it", pin)
            try connect(port, "--pin", pin, anchors: foreign).expect(76, stderr: "does not lead to a trust anchor")
            try connect(port, "--pin", pin, "--pin-mode", "pin-only", anchors: foreign).expect(stdout: pin)
            try connect(port, "--pin", other, "--pin-mode", "pin-only", anchors: own).expect(76, stderr: pin)
            try connect(port, "--pin", pin, "--pin-mode", "pin-only", "--server-name", "bank.example").expect(
                76, stderr: "is not valid for 'bank.example'")
            try connect(port, "--pin", own).expect(78, stderr: "is not a valid pin: expected sha256/")
            try connect(port, "--pin-mode", "pin-only").expect(64)
            let settings = ConfigurationTests.good(Fixtures.path("ec.p12"))
            func configured(_ more: (String, String)...) throws -> String {
                try sandbox.write(FileForm.properties.text(settings + more), to: "pins.properties")
            }
            for (value, status) in [(pin, Int32(0)), (other, 76)] {
                let file = try configured(("Peers.pin", value), ("Peers.pin-mode", "pin-only"))
                try sandbox.certprov("connect", "localhost:\(port)", "--config", file).expect(status)
            }
            for mode in ["pin-and-pki", "pin-only"] {
                let file = try configured(
                    ("TrustAnchors", own), ("TrustAnchors.crl", "none.pem"), ("Peers.pin", pin),
                    ("Peers.pin-mode", mode))
                let words = mode == "pin-only" ? "remove TrustAnchors.crl" : "none.pem"
                try sandbox.certprov("connect", "localhost:\(port)", "--config", file).expect(
                    mode == "pin-only" ? 78 : 66, stderr: words)
                try sandbox.certprov("check", "--config", file).expect(
                    mode == "pin-only" ? 78 : 66, stdout: words)
            }
            let lonely = try configured(("Peers.pin-mode", "pin-only"))
            try sandbox.certprov("list", "--config", lonely).expect(78, stderr: "needs a 'Peers.pin'")
        }
    }

    @Test func showsEverythingThatIsKnown() throws {
        let ca = Fixtures.path("ca.pem")
        try withServer("-Verify", "3", "-verify_return_error", "-CAfile", ca, "-tls1_2", "-alpn", "http/1.1") { port in
            let document = try connect(port, "--json", "--alpn", "h2", "--alpn", "http/1.1").document("Connection")
            #expect(document["applicationProtocol"].string == "http/1.1")
            #expect(document["certificateRequested"].bool == true)
            #expect(document["clientAuthentication"].string == "completed")
            let certificate = document["serverCertificate"]
            #expect(certificate["subjectAlternativeNames"].array.map(\.string) == ["dns:localhost"])
            #expect(certificate["key"]["algorithm"].string == "EC" && certificate["key"]["bits"].int == 256)
            let text = try connect(port, "--alpn", "http/1.1").stdout
            for words in [
                "protocol     TLS 1.2\n", "application  http/1.1\n", "server names dns:localhost\n",
                "server pin   sha256/",
                "result       asked for, and the handshake was completed\n",
            ] {
                #expect(text.contains(words), "\(text)")
            }
        }
    }

    /// The name is what the user asked for; the address is what the name service said.
    @Test func aServerCertificateForTheAddressIsNotForTheName() throws {
        let address = sandbox.path + "/address.pem"
        try withServer("-cert", address, "-key", sandbox.path + "/address.key") { port in
            let output = try connect(port, "--json", "--server-name", "bank.example", anchors: address)
            let message = try output.expectFailure("serverNotTrusted", status: 76)
            #expect(message.contains("is not valid for 'bank.example'"))
        }
    }

    @Test func saysThatNoCertificateWasAskedFor() throws {
        let output = try withServer { try connect($0) }
        #expect(output.status == 0 && output.stdout.contains("did not ask"), "\(output)")
    }

    @Test(arguments: ["-tls1_2", "-tls1_3"]) func aRefusedCertificateIsRejected(version: String) throws {
        let output = try withServer(
            "-Verify", "3", "-verify_return_error", "-CAfile", sandbox.path + "/server.pem", version
        ) { try connect($0, "--json") }
        try output.expectFailure("rejected", status: 77)
    }

    @Test func aServerThatIsNotTrustedIsCalledThat() throws {
        let output = try withServer { try connect($0, "--json", anchors: Fixtures.path("ca.pem")) }
        try output.expectFailure("serverNotTrusted", status: 76)
    }

    @Test func trustsWhatThePropertyFileTrusts() throws {
        let settings = ConfigurationTests.good(Fixtures.path("ec.p12"))
        let file = try sandbox.write(
            FileForm.properties.text(settings + [("TrustAnchors", sandbox.path + "/server.pem")]),
            to: "trust.properties")
        try withServer { port in
            try sandbox.certprov("connect", "localhost:\(port)", "--config", file).expect()
            let other = ["--trust-anchors", Fixtures.path("ca.pem")]
            let refused = try sandbox.certprov(["connect", "localhost:\(port)", "--config", file] + other).expect(76)
            let advice =
                "(trust anchors: the file \(Fixtures.path("ca.pem"))); check --trust-anchors, or TrustAnchors of the property file"
            #expect(refused.stderr.contains(advice), "\(refused)")
        }
    }

    @Test func showsTheStatusOfARequest() throws {
        try withServer { port in
            try connect(port, "--http").expect(stdout: "http         GET / is answered with the status 200\n")
            #expect(try connect(port, "--http", "--json").document("Connection")["httpStatus"].int == 200)
            #expect(try connect(port, "--json").document("Connection")["httpStatus"].isNull)
            #expect(try connect(port, "--http", "--alpn", "h2").status == 64)
        }
    }

    /// nginx completes the handshake with any client certificate, and then answers 400.
    @Test("connect --http shows that nginx refuses a client certificate", arguments: ["TLSv1.2", "TLSv1.3"])
    func nginxRefusesByHTTP(version: String) throws {
        let port = try ReservedPort()
        try sandbox.shell(
            """
            cd "$1" && printf 'daemon off;\\npid nginx.pid;\\nerror_log stderr;\\nevents {}\\nhttp {\\naccess_log off;\\n' >nginx.conf
            for name in client_body proxy fastcgi uwsgi scgi; do echo "${name}_temp_path $1/$name;"; done >>nginx.conf
            cat >>nginx.conf <<END
            server { listen 127.0.0.1:$2 ssl; ssl_protocols $3; ssl_certificate $1/server.pem;
            ssl_certificate_key $1/server.key; ssl_verify_client on; ssl_verify_depth 3;
            ssl_client_certificate $4; location / { return 204; } } }
            END
            """, sandbox.path, port.description, version, Fixtures.path("ca.pem")
        ).require()
        let nginx = try sandbox.start(["/usr/sbin/nginx", "-p", sandbox.path, "-c", "nginx.conf", "-e", "stderr"])
        defer {
            nginx.kill(SIGTERM)
            _ = nginx.wait()
        }
        var output = try connect(port.description, "--http", "--json")
        while output.status == 69, !nginx.hasEnded {
            usleep(10_000)
            output = try connect(port.description, "--http", "--json")
        }
        let accepted = try output.document("Connection")
        #expect(accepted["httpStatus"].int == 204 && accepted["clientAuthentication"].string == "completed")
        for isExpired in [false, true] {
            let output = try sandbox.certprov(
                ["connect", "localhost:\(port)", "--trust-anchors", sandbox.path + "/server.pem", "--http"]
                    + adHoc(try selfSigned(isExpired: isExpired))
            ).expect(77)
            #expect(output.stdout.contains("GET / is answered with the status 400"), "\(output)")
            #expect(output.stderr.contains("with the status 400: nginx answers so"), "\(output)")
            let errors = try sandbox.certprov(
                ["connect", "localhost:\(port)", "--trust-anchors", sandbox.path + "/server.pem", "--http", "--json"]
                    + adHoc(try selfSigned(isExpired: isExpired))
            ).errorDocuments()
            #expect(errors.first?["nativeCode"].int == 400)
            #expect(output.stderr.contains("'CN=self': it expired on 2020-02-01T00:00:00Z") == isExpired, "\(output)")
        }
    }

    /// A PKCS#12 file with an identity that no server here trusts.
    private func selfSigned(isExpired: Bool) throws -> String {
        try sandbox.shell(
            """
            cd "$1" && rm -rf own && mkdir own && : >own/index && echo 01 >own/serial &&
            printf '[ca]\\ndefault_ca=d\\n[d]\\nnew_certs_dir=own\\ndatabase=own/index\\nserial=own/serial\\n' >own/cnf &&
            printf 'default_md=sha256\\npolicy=p\\n[p]\\ncommonName=supplied\\n' >>own/cnf &&
            openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout own.key -subj /CN=self -out own.csr &&
            openssl ca -batch -notext -selfsign -config own/cnf -keyfile own.key -in own.csr -out own.pem \
                -startdate 20200101000000Z -enddate $2 &&
            openssl pkcs12 -export -in own.pem -inkey own.key -passout env:PW -out own-$2.p12
            """, sandbox.path, isExpired ? "20200201000000Z" : "20400201000000Z", with: ["PW": Fixtures.password]
        ).require()
        return sandbox.path + (isExpired ? "/own-20200201000000Z.p12" : "/own-20400201000000Z.p12")
    }

    @Test("A server that sends its expired CA before the valid one is trusted")
    func anExpiredCABesideTheValidOneIsPassedOver() throws {
        try sandbox.shell(
            """
            cd "$1" && key() { openssl ecparam -name prime256v1 -genkey -noout -out $1.key; } && key root && key ica &&
            openssl req -x509 -new -key root.key -subj /CN=Root -days 9 -out root.pem &&
            openssl req -new -key ica.key -subj /CN=ICA -out ica.csr &&
            printf 'basicConstraints=critical,CA:true\\n' >ca.ext && mkdir ca && : >ca/index && echo 01 >ca/serial &&
            printf '[ca]\\ndefault_ca=d\\n[d]\\nnew_certs_dir=ca\\ndatabase=ca/index\\nserial=ca/serial\\ndefault_md=sha256\\n' >ca.cnf &&
            printf 'policy=p\\nunique_subject=no\\n[p]\\ncommonName=supplied\\n' >>ca.cnf &&
            for dates in "20200101000000Z 20200201000000Z old" "20200101000000Z 20400101000000Z new"; do set -- "$1" $dates
                openssl ca -batch -notext -config ca.cnf -cert root.pem -keyfile root.key -in ica.csr -extfile ca.ext \
                    -startdate $2 -enddate $3 -out ica-$4.pem || exit; done &&
            openssl req -new -key server.key -subj /CN=localhost -addext subjectAltName=DNS:localhost -out leaf.csr &&
            openssl x509 -req -in leaf.csr -CA ica-new.pem -CAkey ica.key -CAcreateserial -copy_extensions copy -days 5 -out leaf.pem &&
            cat ica-old.pem ica-new.pem >icas.pem
            """, sandbox.path
        ).require()
        _ = try withServer("-cert", "leaf.pem", "-cert_chain", "icas.pem") { port in
            try connect(port, anchors: sandbox.path + "/root.pem").expect()
        }
    }

    @Test("A self-signed server certificate is trusted if it is an anchor, also if it is no CA's")
    func aCertificateThatIsNoCAIsItsOwnAnchor() throws {
        try sandbox.shell(
            """
            cd "$1" && printf '[req]\\ndistinguished_name=d\\n[d]\\n' >plain.cnf &&
            openssl req -x509 -config plain.cnf -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout plain.key \
                -out plain.pem -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                -addext basicConstraints=critical,CA:FALSE
            """, sandbox.path
        ).require()
        _ = try withServer("-cert", "plain.pem", "-key", "plain.key") { port in
            try connect(port, anchors: sandbox.path + "/plain.pem").expect()
        }
    }

    @Test("connect to a port without a server is unavailable and says what to check")
    func nobodyThere() throws {
        let message = try connect("1", "--json").expectFailure("unavailable", status: 69)
        #expect(
            message
                == "Cannot connect to localhost:1: Connection refused. Check the name and the port, and that the server is up."
        )
    }

    @Test(arguments: ["localhost", "localhost:0", ":443", "a:b:443"]) func aBadAddressIsUsage(address: String) throws {
        try sandbox.certprov(["connect", address] + adHoc(Fixtures.path("ec.p12"))).expect(64)
    }
}
