import Foundation
import Glibc
import TestSupport

/// Identities that `openssl` makes, once per run, in a directory that goes with the process.
///
/// A root, an intermediate under it, and leaves of every kind of key; each leaf as `NAME.pem`, `NAME.key` and in
/// PKCS#12 files.
enum Fixtures {
    static let password = "pw-Tr0ub4dor&3-\u{e4}"

    static func path(_ name: String) -> String { directory + "/" + name }

    /// Traps when they cannot be made: no test means anything then.
    private static let directory: String = {
        do { return try make() } catch { fatalError("the fixtures cannot be made: \(error)") }
    }()

    private static func make() throws -> String {
        var template = Array("/tmp/certprov-fixtures-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Subprocess.Failure(description: "mkdtemp: \(errno)") }
        let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        setenv("CERTPROV_E2E_FIXTURES", path, 1)
        atexit {
            if let path = getenv("CERTPROV_E2E_FIXTURES") {
                try? FileManager.default.removeItem(atPath: String(cString: path))
            }
        }
        chmod(path, 0o755)
        let environment = [
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PW": password, "DIRECTORY": path,
        ]
        let output = try Subprocess(["/bin/sh", "-euc", script], environment: environment, .captured()).wait()
        guard output.status == 0 else { throw Subprocess.Failure(description: "\(output)") }
        return path
    }

    private static let script = #"""
        cd "$DIRECTORY"
        exec 2>log
        trap 'status=$?; [ $status = 0 ] || cat log >&1' EXIT
        authority() { # NAME SUBJECT ISSUER
            openssl ecparam -name prime256v1 -genkey -noout -out $1.key
            openssl req -new -key $1.key -subj "$2" -out $1.csr
            printf 'basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n' >$1.ext
            if [ $3 = $1 ]; then signer="-signkey $1.key"; else signer="-CA $3.pem -CAkey $3.key"; fi
            openssl x509 -req -in $1.csr $signer -set_serial 0x$4 -days 3650 -sha256 -extfile $1.ext -out $1.pem
        }
        leaf() { # NAME SUBJECT SERIAL DAYS
            openssl req -new -utf8 -key $1.key -subj "$2" -out $1.csr
            printf 'keyUsage=critical,digitalSignature\nextendedKeyUsage=clientAuth\n' >$1.ext
            printf 'subjectAltName=DNS:%s.example,email:%s@example.org,IP:192.0.2.7,IP:2001:db8::7,URI:urn:x:%s\n' \
                $1 $1 $1 >>$1.ext
            openssl x509 -req -in $1.csr -CA intermediate.pem -CAkey intermediate.key -set_serial 0x$3 -days $4 \
                -sha256 -extfile $1.ext -out $1.pem
            export_p12 $1
        }
        export_p12() { # NAME [OPTIONS]
            name=$1; shift
            openssl pkcs12 -export -inkey $name.key -in $name.pem -certfile intermediate.pem -name $name \
                -passout env:PW "$@" -out $name.p12
        }
        ec() { openssl ecparam -name $2 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out $1.key; }
        authority root '/O=Example/CN=Root' root 01
        authority intermediate '/O=Example/CN=Intermediate' root 0a02
        ec ec prime256v1; leaf ec '/C=DE/O=Example, Inc./OU=a\+b/CN=client "é" ec' 00f1e2d3c4b5a69788 400
        ec p384 secp384r1; leaf p384 '/CN=p384' 11 400
        ec a prime256v1; leaf a '/CN=identity-a' 0a 400
        ec b prime256v1; leaf b '/CN=identity-b' 0b 400
        ec soon prime256v1; leaf soon '/CN=soon' 12 5
        openssl genpkey -algorithm ed25519 -out ed25519.key; leaf ed25519 '/CN=ed25519' 7f 400
        openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.key; leaf rsa '/CN=rsa' 80 400
        cp rsa.key legacy.key; leaf legacy '/CN=legacy' 81 400
        export_p12 legacy -legacy -certpbe PBE-SHA1-RC2-40 -keypbe PBE-SHA1-3DES
        openssl pkcs12 -export -inkey a.key -in a.pem -name plain -passout pass: -out empty.p12
        cat intermediate.pem root.pem >ca.pem
        chmod 644 *
        """#
}
