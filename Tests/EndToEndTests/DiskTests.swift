import Foundation
import Glibc
import TestSupport
import Testing

/// Disks that are full or read-only, and directories that the user may not write to.
@Suite struct DiskTests {
    private let sandbox: Sandbox
    private let fixtures = ["A": Fixtures.path("a.p12"), "B": Fixtures.path("b.p12")]

    init() throws { sandbox = try Sandbox() }

    /// How a mount namespace is had here; `nil`, said aloud, where it cannot be.
    private static let namespace: [String]? = {
        for command in [["unshare", "-m"], ["unshare", "-rm"]] {
            let trial = ["/bin/sh", "-c", "mount -t tmpfs -o size=64k certprov /mnt"]
            if (try? Subprocess.run(command + trial)) != nil { return command }
        }
        print("DiskTests: no mount namespace can be made here, so full and read-only disks are NOT TESTED.")
        return nil
    }()

    /// Runs a script with a tmpfs of 64 KiB over `state`, and what every script needs.
    private func onSmallDisk(_ script: String) throws -> Output? {
        guard let namespace = Self.namespace else { return nil }
        let prelude = #"""
            set -u
            fail() { echo "FAIL: $*"; exit 1; }
            expect() { # STATUS CODE COMMAND…
                status=$1 code=$2; shift 2
                "$@" >out 2>err; found=$?
                [ $found = $status ] || fail "status $found, not $status: $* $(cat out err)"
                [ -z "$code" ] || grep -q "\"code\":\"$code\"" err || fail "no $code: $* $(cat err)"
                [ -z "$code" ] || [ ! -s out ] || fail "output: $(cat out)"
            }
            fetch() { "$CERTPROV" fetch --json --provider pkcs12 --set path=client.p12 \
                --set password-source=env:P12_PASSWORD "$@"; }
            list() { "$CERTPROV" list --json --provider pkcs12 --set path=client.p12 \
                --set password-source=env:P12_PASSWORD; }
            is() { grep -q "CN=identity-$1" out || fail "not $1: $(cat out)"; }
            cd "$HOME/.."; cp "$A" client.p12
            mount -t tmpfs -o size=64k,mode=700 certprov state || fail mount

            """#
        return try sandbox.run(namespace + ["/bin/sh", "-c", prelude + script], with: fixtures)
    }

    private func expectDone(_ output: Output?, sourceLocation: SourceLocation = #_sourceLocation) {
        guard let output else { return }
        #expect(output.status == 0 && output.stdout == "done\n", "\(output)", sourceLocation: sourceLocation)
    }

    @Test func aFullDiskLeavesTheStoredIdentity() throws {
        expectDone(
            try onSmallDisk(
                #"""
                expect 0 '' fetch; is a
                cp "$B" client.p12
                cat /dev/zero >state/filler 2>/dev/null
                for again in 1 2 3; do
                    expect 73 storeWriteFailed fetch --force
                    grep -q 'No space left on device' err || fail "$(cat err)"
                done
                expect 0 '' fetch; is a
                expect 0 '' list; is a; is b
                [ "$(find state/certprov -name '.tmp-*')" = '' ] || fail leftovers
                rm state/filler
                expect 0 '' fetch --force; is b
                echo done
                """#))
    }

    /// Also where its files are those of the identity: the next renewal would fail.
    @Test("check fails where the file system of Files.directory is full")
    func aFullDirectoryOfFiles() throws {
        expectDone(
            try onSmallDisk(
                #"""
                mkdir store; export STATE_DIRECTORY=$PWD/store
                printf 'CertificateProvider = pkcs12\nCertificateProvider.pkcs12.path = %s/client.p12\n%s\n%s/state/web\n' "$PWD" \
                    'CertificateProvider.pkcs12.password-source = env:P12_PASSWORD' "Files.directory = $PWD" >c.properties
                expect 0 '' "$CERTPROV" fetch --config c.properties
                expect 0 '' "$CERTPROV" check --config c.properties
                cat /dev/zero >state/filler 2>/dev/null
                for again in current gone never; do
                    expect 73 '' "$CERTPROV" check --config c.properties
                    grep -q 'Files.directory.*No space left on device; free some space there' out || fail "$again $(cat out)"
                    if [ $again = current ]; then mv state/web/current state/web/old; else mv state/web state/other; fi
                done
                rm state/filler
                expect 0 '' "$CERTPROV" check --config c.properties
                echo done
                """#))
    }

    @Test func aDiskThatIsFullFromTheStartIsSaid() throws {
        expectDone(
            try onSmallDisk(
                #"""
                cat /dev/zero >state/filler 2>/dev/null
                expect 73 storeWriteFailed fetch
                rm state/filler
                expect 0 '' fetch; is a
                echo done
                """#))
    }

    /// The disk has room for ever more: whatever step runs out of it, the set before stays.
    @Test func outOnADiskThatFillsUpKeepsItsSet() throws {
        expectDone(
            try onSmallDisk(
                #"""
                export XDG_STATE_HOME="$PWD/home"
                expect 0 '' fetch --force --export-key --out state/out; is a
                sum=$(cat state/out/current/* | sha256sum)
                cp "$B" client.p12
                cat /dev/zero >state/filler 2>/dev/null
                for free in 0 1 2 3 4; do
                    size=$(stat -c %s state/filler)
                    truncate -s $((size - 4096 * (free > 0))) state/filler
                    fetch --force --export-key --out state/out >out 2>err; found=$?
                    if [ $found = 0 ]; then break; fi
                    [ $found = 73 ] || fail "status $found: $(cat err)"
                    [ "$(cat state/out/current/* | sha256sum)" = "$sum" ] || fail "current has changed"
                    [ $(ls -A state/out | wc -l) = 3 ] || fail "left: $(ls -A state/out)"
                done
                [ $free -gt 0 ] || fail "the disk was not full"
                rm state/filler
                expect 0 '' fetch --export-key --out state/out; is b
                [ "$(cat state/out/current/* | sha256sum)" != "$sum" ] || fail "current has not changed"
                echo done
                """#))
    }

    @Test("On a disk that fills up, a named pair is made whole or not at all")
    func aFullDiskLeavesNoNamedPair() throws {
        expectDone(
            try onSmallDisk(
                #"""
                openssl genpkey -algorithm ED25519 -out key.pem; chmod 600 key.pem
                expect 0 '' "$CERTPROV" keys create first --type p256
                for command in 'create made --type p256' 'import made key.pem'; do
                    cat /dev/zero >state/filler 2>/dev/null
                    for free in 0 1 2 3 4 5 6 7 8; do
                        size=$(stat -c %s state/filler)
                        truncate -s $((size - 4096 * (free > 0))) state/filler
                        "$CERTPROV" keys $command >out 2>err; found=$?
                        [ $found = 0 ] && break
                        [ $found = 73 ] && grep -q storeWriteFailed err || fail "status $found: $(cat err)"
                        [ ! -s out ] || fail "output: $(cat out)"
                        "$CERTPROV" keys exists made >out 2>err; found=$?
                        [ $found = 1 ] && grep -qx false out || fail "exists $found: $(cat out err)"
                        expect 0 '' "$CERTPROV" keys sign first client.p12
                    done
                    [ $free -gt 0 ] || fail "the disk was not full"
                    rm state/filler
                    expect 0 '' "$CERTPROV" keys sign made client.p12
                    expect 0 '' "$CERTPROV" keys delete made; grep -qx true out || fail "$(cat out)"
                    [ $(ls state/certprov/records/store | wc -l) = 1 ] || fail "$(ls state/certprov/records/store)"
                done
                echo done
                """#))
    }

    @Test func aReadOnlyStoreAnswersAndIsNotWritten() throws {
        expectDone(
            try onSmallDisk(
                #"""
                expect 0 '' fetch; is a
                cp "$B" client.p12
                mount -o remount,ro state || fail remount
                expect 0 '' fetch; is a
                expect 0 '' list; is a; is b
                expect 73 storeWriteFailed fetch --force
                grep -q 'Read-only file system' err || fail "$(cat err)"
                expect 73 deleteFailed "$CERTPROV" delete --yes --json --provider pkcs12 --set path=client.p12
                expect 73 storeWriteFailed fetch --out state/out
                expect 0 '' fetch; is a
                mount -o remount,rw state || fail remount
                expect 0 '' fetch --force; is b
                echo done
                """#))
    }

    @Test("check fails where the store is on a full or read-only disk, and leaves nothing there")
    func checkTriesAWrite() throws {
        expectDone(
            try onSmallDisk(
                #"""
                check() { "$CERTPROV" check --json --provider pkcs12 --set path=client.p12 \
                    --set password-source=env:P12_PASSWORD >out 2>err; }
                refused() { # REASON
                    check; found=$?
                    [ $found = 73 ] && grep -q '"code":"storeWriteFailed"' out && grep -q "$1" out || fail "$found $(cat out err)"
                }
                check || fail "empty: $(cat out err)"
                [ "$(ls -A state)" = '' ] || fail "left: $(ls -A state)"
                mount -o remount,ro state || fail remount
                refused 'Read-only file system'
                mount -o remount,rw state || fail remount
                expect 0 '' fetch
                check || fail "before: $(cat out err)"
                files=$(find state)
                cat /dev/zero >state/filler 2>/dev/null
                refused 'No space left on device'
                rm state/filler
                mount -o remount,ro state || fail remount
                refused 'Read-only file system'
                mount -o remount,rw state || fail remount
                check || fail "after: $(cat out err)"
                [ "$(find state)" = "$files" ] || fail "left: $(find state)"
                echo done
                """#))
    }

    @Test("A limit of the size of files is an error, not a signal")
    func aFileSizeLimitIsSaid() throws {
        // The output goes to a file, too, but that of another process.
        let output = try sandbox.shell(
            #"""
            (ulimit -f 0; "$CERTPROV" fetch --json --provider pkcs12 --set path="$A" \
                --set password-source=env:P12_PASSWORD; echo "status $?") 2>&1 | cat
            """#, with: fixtures)
        #expect(output.stdout.contains("status 73") && output.stdout.contains("storeWriteFailed"), "\(output)")
        #expect(output.stdout.contains("File too large"), "\(output)")
    }

    /// Swift reads the arguments of a program from there.
    @Test("Without /proc, the command has its arguments")
    func theCommandNeedsNoProc() throws {
        guard let namespace = Self.namespace else { return }
        let output = try sandbox.run(
            namespace + [
                "/bin/sh", "-c",
                #"""
                mount --make-rprivate / 2>/dev/null
                mount -t tmpfs none /proc && [ ! -e /proc/self ] || { echo NOT TESTED; exit; }
                "$CERTPROV" list --json --provider pkcs12 --set path="$A" --set password-source=env:P12_PASSWORD
                """#,
            ], with: fixtures)
        if output.stdout == "NOT TESTED\n" {
            return print("DiskTests: /proc cannot be hidden here, so it is NOT TESTED.")
        }
        #expect(output.status == 0 && output.stdout.contains("CN=identity-a"), "\(output)")
    }

    @Test("A file that others may read on a volume that is read-only is not to be changed by chmod")
    func theAdviceForAReadOnlyVolumeIsItsMode() throws {
        guard let namespace = Self.namespace else { return }
        let output = try sandbox.run(
            namespace + [
                "/bin/sh", "-c",
                #"""
                cd "$HOME/.."; mkdir volume; mount -t tmpfs certprov volume || exit
                cp "$A" volume/a.p12; printf %s "$P12_PASSWORD" >volume/password
                chmod 644 volume/*; mount -o remount,ro volume || exit
                "$CERTPROV" check --provider pkcs12 --set path=volume/a.p12 --set password-source=env:P12_PASSWORD
                "$CERTPROV" fetch --provider pkcs12 --set path=volume/a.p12 \
                    --set password-source=file:"$PWD/volume/password" 2>&1
                """#,
            ], with: fixtures)
        #expect(output.stdout.contains("set defaultMode: 0440 for the volume"), "\(output)")
        #expect(output.stdout.contains("set defaultMode: 0400 for the volume"), "\(output)")
        #expect(!output.stdout.contains("chmod"), "\(output)")
    }

    @Test func aDirectoryWithoutTheRightToWriteIsSaid() throws {
        // Root may write anywhere: the script runs as another user.
        let user = geteuid() == 0 ? ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] : []
        if geteuid() == 0 {
            try #require(try sandbox.shell("chown -R 65534:65534 \"$1\"", sandbox.path).status == 0)
            let trial = try sandbox.run(user + [BuiltCommand.path, "--version"])
            guard trial.status == 0 else {
                return print("DiskTests: the command cannot be run as another user, so rights are NOT TESTED.")
            }
        }
        let script = #"""
            set -u
            fail() { echo "FAIL: $*"; exit 1; }
            cd "$HOME/.."; cp "$A" client.p12
            certprov() { command=$1; shift; "$CERTPROV" $command --json --provider pkcs12 --set path=client.p12 \
                --set password-source=env:P12_PASSWORD "$@" >out 2>err; }
            chmod 555 state
            certprov fetch; [ $? = 73 ] && grep -q 'Permission denied' err || fail "1 $(cat err)"
            chmod 755 state
            certprov fetch || fail "2 $(cat err)"
            chmod -R a-w state
            certprov fetch || fail "3 $(cat err)"
            certprov list || fail "4 $(cat err)"
            certprov fetch --force; [ $? = 73 ] || fail "5 $(cat err)"
            certprov check; [ $? = 73 ] && grep -q 'Permission denied' out || fail "5a $(cat out err)"
            certprov delete --yes; [ $? = 73 ] && grep -q deleteFailed err || fail "6 $(cat err)"
            certprov fetch || fail "7 $(cat err)"
            chmod -R u+w state
            mkdir -m 555 out-directory
            certprov fetch --out out-directory; [ $? = 73 ] || fail "8 $(cat err)"
            certprov fetch --out out-directory/deeper; [ $? = 73 ] || fail "9 $(cat err)"
            chmod 000 client.p12
            certprov fetch --force; [ $? = 78 ] && grep -q 'right to read' err || fail "10 $(cat err)"
            certprov fetch || fail "11 $(cat err)"
            chmod 000 state/certprov
            certprov fetch; [ $? = 74 ] || fail "12 $(cat err)"
            chmod 700 state/certprov
            echo done
            """#
        expectDone(try sandbox.run(user + ["/bin/sh", "-c", script], with: fixtures))
    }
}
