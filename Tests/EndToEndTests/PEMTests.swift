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
        try sandbox.shell(
            """
            cd "$1" && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days $3 -subj "/CN=$2" \\
                -keyout new.key -out new.crt 2>/dev/null && chmod 600 new.key && mv new.key tls.key && mv new.crt tls.crt
            """, sandbox.path, name, "\(days)"
        ).require()
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
        try certprov("list").expect(stdout: "pem       -      CN=one   EC P-256  file")
        #expect(try certprov("renew").status == 66)
        #expect(try certprov("fetch").status == 0)
        try put("two")
        try certprov("renew", "--json").expect(stdout: "CN=two")
        try certprov("fetch", "--out", sandbox.path + "/out").expect()
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
        try check().expect(
            78,
            stdout:
                "The CAs come with the identity, which cannot be read: \(sandbox.path)/tls.key has")
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
        try sandbox.shell(script, sandbox.path, user).expect()
    }

    @Test(
        "A key that an access control list opens for the service alone, or that systemd has passed, is used; no advice takes it away",
        .enabled(if: geteuid() == 0, "it needs two users"))
    func keysOfServices() throws {
        try put("one")
        let script = #"""
            set -u
            cd "$1"; user="setpriv --reuid 12345 --regid 12345 --clear-groups env HOME=/nonexistent STATE_DIRECTORY=$1/state"
            fail() { echo "FAIL: $*"; exit 1; }
            fetch() { $user "$@" "$CERTPROV" fetch --force --provider pem --set certificate="$PWD/tls.crt" --set key="$PWD/tls.key" >out 2>&1; }
            install -d -o 12345 -g 12345 -m 700 state
            chmod 755 . && chmod 644 tls.crt
            $user "$CERTPROV" --version >/dev/null 2>&1 || { echo "NOT TESTED: the command cannot be run as another user."; exit 0; }
            setfacl -m u:12345:r tls.key
            fetch env || fail "$(cat out)"
            if grep -q warning out; then fail "$(cat out)"; fi
            setfacl -m u:12346:r tls.key
            fetch env || fail "$(cat out)"
            grep -q 'read by the user 12346' out || fail "$(cat out)"
            # Others may read it, too: the advice leaves it to the service.
            chmod o+r tls.key
            if fetch env; then fail "open to all: $(cat out)"; fi
            grep -q 'chmod 600' out && fail "$(cat out)"
            advice=$(sed -n 's/.*have root run \(setfacl .*\), or give.*/\1/p' out)
            [ -n "$advice" ] || fail "$(cat out)"
            $advice || fail "$advice"
            fetch env || fail "$advice: $(cat out)"
            # As systemd passes it.
            setfacl -b tls.key && chmod 440 tls.key && setfacl -m u:12345:r,u:12346:r tls.key
            fetch env CREDENTIALS_DIRECTORY="$PWD" || fail "$(cat out)"
            if grep -q warning out; then fail "$(cat out)"; fi
            """#
        try sandbox.shell(script, sandbox.path).expect()
    }

    /// Puts a pair of an intermediate CA into `tls.crt` and `tls.key`: with the CA's certificate, or without.
    private func putIssued(_ name: String, days: Int = 9, isWhole: Bool) throws {
        try sandbox.shell(
            """
            cd "$1"; new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc "$@" 2>/dev/null; }
            [ -e ica.pem ] || {
                new -x509 -subj /CN=Root -days 99 -keyout root.key -out root.pem
                new -subj /CN=ICA -keyout ica.key -out ica.csr
                echo basicConstraints=critical,CA:TRUE >ca.ext
                openssl x509 -req -in ica.csr -CA root.pem -CAkey root.key -days 99 -extfile ca.ext -out ica.pem 2>/dev/null
            }
            new -subj "/CN=$2" -keyout new.key -out new.csr
            openssl x509 -req -in new.csr -CA ica.pem -CAkey ica.key -days $3 -out new.crt 2>/dev/null
            if $4; then cat ica.pem >>new.crt; fi
            chmod 600 new.key && mv new.key tls.key && mv new.crt tls.crt
            """, sandbox.path, name, "\(days)", "\(isWhole)"
        ).require()
    }

    @Test("A leaf in place of a full chain is not written, and fetch, renew and check name the issuer that it lacks")
    func aLeafInPlaceOfAChain() throws {
        try putIssued("one", isWhole: true)
        let path = try sandbox.write(
            """
            CertificateProvider=pem
            CertificateProvider.pem.certificate=\(sandbox.path)/tls.crt
            CertificateProvider.pem.usage=server
            Files.directory=\(sandbox.path)/out
            """, to: "web.properties")
        func certprov(_ command: String...) throws -> Output {
            try sandbox.certprov(command + ["--config", path])
        }
        let chain = sandbox.path + "/out/current/chain.pem"
        #expect(try certprov("fetch").stderr.isEmpty)
        let before = try String(contentsOfFile: chain, encoding: .utf8)
        try putIssued("two", isWhole: false)
        for command in ["fetch", "renew"] {
            try certprov(command).expect(65, stderr: "without its issuer 'CN=ICA'")
            #expect(try String(contentsOfFile: chain, encoding: .utf8) == before)
        }
        let check = try certprov("check").stdout
        #expect(check.contains("The files are not those of the stored identity"), "\(check)")
        #expect(check.contains("warning  pem chain") && check.contains("without its issuer 'CN=ICA'"), "\(check)")
        // On purpose, or where nothing is written.
        unlink(sandbox.path + "/out/current")
        #expect(try certprov("fetch").stderr.contains("without its issuer 'CN=ICA'"))
        #expect(try certprov("renew").stderr.contains("without its issuer 'CN=ICA'"))
        try sandbox.certprov([
            "fetch", "--provider", "pem", "--set", "certificate=\(sandbox.path)/tls.crt", "--set", "usage=server",
        ]).expect(stderr: "without its issuer 'CN=ICA'")
        try putIssued("three", isWhole: true)
        #expect(try certprov("renew").stderr.isEmpty)
        #expect(try !certprov("check").stdout.contains("pem chain"))
    }

    @Test("check says that an identity does not lead to the CAs that come with it")
    func aStaleCA() throws {
        try putIssued("one", isWhole: true)
        let path = try sandbox.write(
            """
            CertificateProvider=pem
            CertificateProvider.pem.certificate=\(sandbox.path)
            CertificateProvider.pem.usage=both
            TrustAnchors=provider
            """, to: "web.properties")
        func check() throws -> String { try sandbox.certprov(["check", "--config", path]).stdout }
        try sandbox.write(
            String(contentsOfFile: sandbox.path + "/root.pem", encoding: .utf8), to: "ca.crt", mode: 0o644)
        #expect(try sandbox.certprov(["fetch", "--config", path]).status == 0)
        let good = try check()
        #expect(!good.contains("does not lead"), "\(good)")
        try sandbox.write(try TestAuthority("Old").root.pemRepresentation, to: "ca.crt", mode: 0o644)
        let stale = try check()
        #expect(stale.contains("warning  TrustAnchors"), "\(stale)")
        #expect(stale.contains("'CN=one', issued by 'CN=ICA', does not lead"), "\(stale)")
    }

    @Test("check fails for trust that is of no use, and judges each anchor by itself")
    func anchorsThatDoNotCount() throws {
        try put("one")
        func day(_ days: Double) -> Date { Date(timeIntervalSinceNow: days * 86400) }
        let authority = try TestAuthority()
        let good = authority.root
        let early = try authority.issue("early", notBefore: day(1)).certificate
        let leaf = try authority.issue("leaf").certificate
        let expired = try TestAuthority("Expired", from: day(-9), until: day(-1)).root
        let ending = try TestAuthority("Ending", from: day(-9), until: day(3)).root
        let next = try TestAuthority("Ending", until: day(300)).root
        for (anchors, options, status, findings) in [
            ([early], [], 78, [("error", "does not count before")]), ([leaf], [], 78, [("error", "is not a CA's")]),
            ([expired], [], 66, [("error", "has expired at")]),
            ([expired, leaf], [], 66, [("error", "has expired at"), ("error", "is not a CA's")]),
            ([leaf, good, expired], [], 0, [("warning", "is not a CA's"), ("warning", "has expired at")]),
            (
                [good, expired, ending], ["--expires-within", "7d"], 66,
                [("error", "has expired at"), ("error", "within 7d")]
            ),
            ([ending], [], 0, [("ok", "one certificate")]),
            ([ending], ["--expires-within", "1d"], 0, [("ok", "until")]),
            ([ending], ["--expires-within", "7d"], 66, [("error", " ends at ")]),
            ([ending, next], ["--expires-within", "7d"], 0, [("ok", "2 certificates")]),
        ] as [([X509Certificate], [String], Int32, [(String, String)])] {
            let file = try sandbox.write(anchors.map(\.pemRepresentation).joined(), to: "anchors.pem")
            for setting in ["TrustAnchors", "CertificateProvider.pem.trust-bundle"] {
                let path = try sandbox.write(
                    """
                    CertificateProvider=pem
                    CertificateProvider.pem.certificate=\(sandbox.path)/tls.crt
                    \(setting)=\(file)
                    """, to: "web.properties")
                let output = try sandbox.certprov(["check", "--json", "--config", path] + options).expect(status)
                let what = setting.hasPrefix("C") ? "pem trust-bundle" : setting
                let items = try output.document("CheckReport")["items"].array.filter { $0["what"].string == what }
                #expect(items.map { $0["severity"].string } == findings.map(\.0), "\(output)")
                for (item, finding) in zip(items, findings) {
                    #expect(item["detail"].string?.contains(finding.1) == true, "\(output)")
                }
            }
        }
    }

    @Test("A mistake in the files is an error with its exit status")
    func mistakes() throws {
        try put("one")
        chmod(sandbox.path + "/tls.key", 0o644)
        for command in ["fetch", "check"] { #expect(try certprov(command).status == 78) }
        chmod(sandbox.path + "/tls.key", 0o640)
        try certprov("fetch").expect(stderr: "every member of the group")
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
