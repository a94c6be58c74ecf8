import CertificateProviding
import Foundation
import Glibc
import TestSupport
import Testing

/// The command with a certificate and a key in PEM files, which another program replaces.
@Suite struct PEMTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// Puts a self-signed pair into `tls.crt` and `tls.key`, as `openssl req` makes it.
    private func put(_ name: String, days: Int = 100) throws {
        let output = try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days $3 -subj "/CN=$2" \\
                -keyout new.key -out new.crt 2>/dev/null && chmod 600 new.key && mv new.key tls.key && mv new.crt tls.crt
            """, sandbox.path, name, "\(days)")
        try #require(output.status == 0, "\(output)")
    }

    private func certprov(_ command: String...) throws -> Output {
        let end = command.firstIndex(of: "--out") ?? command.endIndex
        return try sandbox.certprov(
            Array(command[..<end]) + ["--provider", "pem", "--set", "certificate=\(sandbox.path)/tls.crt"]
                + command[end...])
    }

    @Test("list, fetch, renew, check and delete use the files where they are, and take replaced ones at once")
    func theCommands() throws {
        try put("one")
        let listed = try certprov("list")
        #expect(listed.status == 0 && listed.stdout.contains("pem       -      CN=one   EC P-256  file"), "\(listed)")
        #expect(try certprov("renew").status == 66)
        #expect(try certprov("fetch").status == 0)
        try put("two")
        let renewed = try certprov("renew", "--json")
        #expect(renewed.status == 0 && renewed.stdout.contains("CN=two"), "\(renewed)")
        let fetched = try certprov("fetch", "--out", sandbox.path + "/out")
        #expect(fetched.status == 0, "\(fetched)")
        let chain = try String(contentsOfFile: sandbox.path + "/out/current/chain.pem", encoding: .utf8)
        let certificate = try String(contentsOfFile: sandbox.path + "/tls.crt", encoding: .utf8)
        #expect(chain == certificate)
        #expect(try certprov("check").status == 0)
        #expect(try certprov("delete", "--yes").status == 0)
        #expect(FileManager.default.fileExists(atPath: sandbox.path + "/tls.key"))
        #expect(try certprov("renew").status == 66)
    }

    @Test("check says why the CAs that come with the identity are not there")
    func trustThatComesWithAnUnreadableIdentity() throws {
        try put("one")
        let path = try sandbox.write(
            """
            CertificateProvider=pem
            CertificateProvider.pem.certificate=\(sandbox.path)/tls.crt
            CertificateProvider.pem.trust-bundle=\(sandbox.path)/tls.crt
            TrustAnchors=provider
            """, to: "web.properties")
        func check() throws -> Output { try sandbox.certprov("check", "--config", path) }
        #expect(try check().stdout.contains("The CAs come with the identity, and none is stored yet."))
        #expect(try sandbox.certprov("fetch", "--config", path).status == 0)
        #expect(try check().stdout.contains("one certificate, 'CN=one' until"))
        chmod(sandbox.path + "/tls.key", 0o644)
        let output = try check()
        #expect(
            output.status == 78
                && output.stdout.contains(
                    "The CAs come with the identity, which cannot be read: \(sandbox.path)/tls.key has"),
            "\(output)")
    }

    @Test("A directory that may be entered and not listed is used; a link that cannot be followed is named")
    func directories() throws {
        try put("one")
        // Root may go anywhere: the script runs as another user.
        let user = geteuid() == 0 ? "setpriv --reuid 65534 --regid 65534 --clear-groups" : ""
        let script = #"""
            set -u
            cd "$1"; user=$2
            fail() { echo "FAIL: $*"; exit 1; }
            fetch() { $user "$CERTPROV" fetch --provider pem "$@" >out 2>&1; }
            refused() { # what the message says, arguments
                said=$1; shift
                if fetch "$@"; then fail "$* succeeded"; fi
                grep -q "$said" out || fail "$* $(cat out)"
            }
            mkdir private live archive
            mv tls.key private
            cp tls.crt archive/fullchain1.pem; cp private/tls.key archive/privkey1.pem
            ln -s ../archive/fullchain1.pem live/fullchain.pem; ln -s ../archive/privkey1.pem live/privkey.pem
            if [ -n "$user" ]; then chown -R 65534:65534 .; fi
            $user "$CERTPROV" --version >/dev/null 2>&1 || { echo "NOT TESTED: the command cannot be run as another user."; exit 0; }
            chmod 111 private
            fetch --set certificate="$1/tls.crt" --set key="$1/private/tls.key" || fail "private $(cat out)"
            fetch --set certificate="$1/live" || fail "live $(cat out)"
            chmod 000 archive
            refused 'live/fullchain.pem cannot be opened: Permission denied' --set certificate="$1/live"
            mv archive elsewhere
            refused 'live/fullchain.pem cannot be opened: No such file' --set certificate="$1/live"
            chmod 000 live
            refused 'live cannot be opened: Permission denied' --set certificate="$1/live"
            chmod -R u+rwX .
            """#
        let output = try sandbox.shell(script, sandbox.path, user)
        #expect(output.status == 0, "\(output)")
    }

    @Test("check warns of trust anchors that no chain leads to")
    func anchorsThatDoNotCount() throws {
        try put("one")
        let authority = try TestAuthority()
        let early = try authority.issue("early", notBefore: Date(timeIntervalSinceNow: 3600)).certificate
        for (certificate, words) in [
            (early, "does not count before"), (try authority.issue("leaf").certificate, "is not a CA's"),
        ] {
            let anchors = try sandbox.write(certificate.pemRepresentation, to: "anchors.pem")
            let path = try sandbox.write(
                """
                CertificateProvider=pem
                CertificateProvider.pem.certificate=\(sandbox.path)/tls.crt
                TrustAnchors=\(anchors)
                """, to: "web.properties")
            let output = try sandbox.certprov("check", "--config", path)
            #expect(output.stdout.contains(words), "\(output)")
        }
    }

    @Test("A mistake in the files is an error with its exit status")
    func mistakes() throws {
        try put("one")
        chmod(sandbox.path + "/tls.key", 0o644)
        for command in ["fetch", "check"] { #expect(try certprov(command).status == 78) }
        chmod(sandbox.path + "/tls.key", 0o640)
        let warned = try certprov("fetch")
        #expect(warned.status == 0 && warned.stderr.contains("every member of the group"), "\(warned)")
        let key = "openssl ecparam -name prime256v1 -genkey -out tls.key"
        try sandbox.shell("cd $1 && \(key) && chmod 600 tls.key", sandbox.path)
        // The pair is in use, and one of the two is new.
        #expect(try certprov("renew").status == 75)
        #expect(try certprov("fetch", "--force").status == 75)
        // An identity that is not in use has nothing to wait with.
        #expect(try certprov("delete", "--yes").status == 0)
        #expect(try certprov("fetch").status == 65)
        unlink(sandbox.path + "/tls.crt")
        #expect(try certprov("fetch").status == 66)
    }
}
