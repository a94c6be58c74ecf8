import Foundation
import Glibc
import TestSupport
import Testing

/// A store that another program has changed answers with an error, and is not written over.
@Suite struct StoreSafetyTests {
    private let sandbox: Sandbox
    private let client = adHoc(Fixtures.path("ec.p12"))

    init() throws {
        sandbox = try Sandbox()
        try sandbox.certprov(["fetch"] + client).require()
    }

    /// The damage to the store, and the errors of reading and writing it afterwards.
    struct Damage: Sendable, CustomTestStringConvertible {
        let testDescription, text: String
        /// The status of `fetch --force`; 0 where a new entry takes the place of a damaged one.
        let write: Int32
        let script: String

        init(_ name: String, _ text: String, _ write: Int32, _ script: String) {
            (testDescription, self.text, self.write, self.script) = (name, text, write, script)
        }
    }

    @Test(arguments: [
        Damage("store writable by the group", "chmod go-w", 73, "chmod g+w $STORE"),
        Damage("store writable by others", "chmod go-w", 73, "chmod o+w $STORE"),
        Damage("identities writable by the group", "chmod go-w", 73, "chmod g+w $STORE/identities"),
        Damage("provider's directory writable by others", "chmod go-w", 73, "chmod 777 $STORE/identities/pkcs12"),
        Damage("store a link", "symbolic link", 73, "mv $STORE $STORE.moved; ln -s $STORE.moved $STORE"),
        Damage(
            "provider's directory a link", "symbolic link", 73,
            "mv $STORE/identities/pkcs12 $STORE.moved; ln -s $STORE.moved $STORE/identities/pkcs12"),
        Damage("entry a link", "symbolic link", 73, "mv $ENTRY $STORE.moved; ln -s $STORE.moved $ENTRY"),
        Damage("entry a dangling link", "symbolic link", 73, "rm $ENTRY; ln -s $STORE.moved $ENTRY"),
        Damage("entry a directory", "regular file", 73, "rm $ENTRY; mkdir $ENTRY"),
        Damage("entry a pipe", "regular file", 73, "rm $ENTRY; mkfifo $ENTRY"),
        Damage("entry readable by others", "chmod 600", 73, "chmod 644 $ENTRY"),
        Damage(
            "entry of a newer format", "newer certprov (format 2)", 73,
            #"printf '\002' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage(
            "entry of format 255", "newer certprov (format 255)", 73,
            #"printf '\377' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage("key readable by the group", "chmod 600", 74, "chmod 640 $KEY"),
        Damage("key cut off", "31 bytes", 74, "truncate -s 31 $KEY"),
        Damage("key empty", "0 bytes", 74, "truncate -s 0 $KEY"),
        Damage("key too long", "33 bytes", 74, "truncate -s 33 $KEY"),
        Damage("key replaced", "another key", 0, "head -c 32 /dev/urandom >$KEY"),
        Damage("key gone", "another key", 0, "rm $KEY"),
        Damage("entry empty", "damaged", 0, "truncate -s 0 $ENTRY"),
        Damage("entry cut off", "damaged", 0, "truncate -s -1 $ENTRY"),
        Damage("header only", "damaged", 0, "truncate -s 17 $ENTRY"),
        Damage("a bit of the content flipped", "damaged", 0, "flip 60"),
        Damage("a bit of the nonce flipped", "damaged", 0, "flip 20"),
        Damage("format 0", "damaged", 0, #"printf '\000' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage("not sealed", "damaged", 0, "echo something else >$ENTRY"),
        Damage("too large", "the limit is 1048576 bytes", 73, "truncate -s 2M $ENTRY"),
    ])
    func isRefusedAndLeftAsItIs(damage: Damage) throws {
        let flip = #"""
            flip() {
                old=$(od -An -tu1 -j$1 -N1 $ENTRY)
                printf "\\$(printf %o $((old ^ 1)))" | dd of=$ENTRY bs=1 seek=$1 conv=notrunc
            }

            """#
        let variables = ["STORE": sandbox.store, "ENTRY": try sandbox.entry(), "KEY": sandbox.store + "/store.key"]
        try sandbox.shell("set -e; \(flip)\(damage.script)", with: variables).require()
        let before = try snapshot()

        let message = try sandbox.certprov(["fetch", "--json"] + client).expectFailure("storeReadFailed", status: 74)
        #expect(message.contains(damage.text), "\(message)")
        let document = try sandbox.certprov(["list", "--json"] + client).expect(74).document("IdentityList")
        #expect(document["errors"].array.map { $0["code"].string } == ["storeReadFailed"])
        #expect(document["items"].array.map { $0["stored"].bool } == [false])
        #expect(try snapshot() == before)

        let forced = try sandbox.certprov(["fetch", "--force", "--json"] + client)
        if damage.write == 0 {
            #expect(forced.status == 0, "\(forced)")
            #expect(try sandbox.certprov(["fetch"] + client).status == 0)
        } else {
            try forced.expectFailure(damage.write == 73 ? "storeWriteFailed" : "storeReadFailed", status: damage.write)
            #expect(try snapshot() == before)
        }
    }

    /// Every file of the store with its mode and content; the lock may come.
    private func snapshot() throws -> String {
        let output = try sandbox.shell(
            #"""
            cd "$1" && find . ! -name .lock -printf '%p %y %m %U %s %i %l\n' | sort
            find . -type f ! -name .lock -exec sha256sum {} + | sort
            """#, sandbox.path + "/state"
        ).require()
        return output.stdout
    }

    @Test func deletingADamagedEntryIsTheWayOut() throws {
        try sandbox.write("something else", to: try sandbox.entry())
        #expect(try sandbox.certprov(["fetch"] + client).status == 74)
        #expect(try sandbox.certprov(["delete", "--yes"] + client).status == 0)
        #expect(try sandbox.certprov(["fetch"] + client).status == 0)
    }

    @Test func anEntryDoesNotPassForAnother() throws {
        let entry = try sandbox.entry()
        _ = try sandbox.certprov(["fetch"] + adHoc(Fixtures.path("a.p12")))
        let directory = sandbox.store + "/identities/pkcs12/"
        let other = try #require(
            FileManager.default.contentsOfDirectory(atPath: directory).map { directory + $0 }.first { $0 != entry })
        try sandbox.write(contents(other), to: entry)
        try sandbox.certprov(["fetch", "--json"] + client).expectFailure("storeReadFailed", status: 74)
    }

    @Test func aStoreOfAnotherUserIsRefused() throws {
        guard geteuid() == 0 else { return print("StoreSafetyTests: not root, so no store is given to another user.") }
        try sandbox.shell("chown 65534 \"$1\"", sandbox.store).require()
        let message = try sandbox.certprov(["fetch", "--json"] + client).expectFailure("storeReadFailed", status: 74)
        #expect(message.contains("STATE_DIRECTORY") && !message.contains("chown"), "\(message)")
    }
}
