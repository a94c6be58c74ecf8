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
        let output = try sandbox.certprov(["fetch"] + client)
        try #require(output.status == 0, "\(output)")
    }

    /// The damage to the store, and the errors of reading and writing it afterwards.
    struct Damage: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var text: String
        /// The status of `fetch --force`; 0 where a new entry takes the place of a damaged one.
        var write: Int32
        var script: String
    }

    @Test(arguments: [
        Damage(
            testDescription: "store writable by the group", text: "chmod go-w", write: 73, script: "chmod g+w $STORE"),
        Damage(testDescription: "store writable by others", text: "chmod go-w", write: 73, script: "chmod o+w $STORE"),
        Damage(
            testDescription: "identities writable by the group", text: "chmod go-w", write: 73,
            script: "chmod g+w $STORE/identities"),
        Damage(
            testDescription: "provider's directory writable by others", text: "chmod go-w", write: 73,
            script: "chmod 777 $STORE/identities/pkcs12"),
        Damage(
            testDescription: "store a link", text: "symbolic link", write: 73,
            script: "mv $STORE $STORE.moved; ln -s $STORE.moved $STORE"),
        Damage(
            testDescription: "provider's directory a link", text: "symbolic link", write: 73,
            script: "mv $STORE/identities/pkcs12 $STORE.moved; ln -s $STORE.moved $STORE/identities/pkcs12"),
        Damage(
            testDescription: "entry a link", text: "symbolic link", write: 73,
            script: "mv $ENTRY $STORE.moved; ln -s $STORE.moved $ENTRY"),
        Damage(
            testDescription: "entry a dangling link", text: "symbolic link", write: 73,
            script: "rm $ENTRY; ln -s $STORE.moved $ENTRY"),
        Damage(
            testDescription: "entry a directory", text: "regular file", write: 73, script: "rm $ENTRY; mkdir $ENTRY"),
        Damage(testDescription: "entry a pipe", text: "regular file", write: 73, script: "rm $ENTRY; mkfifo $ENTRY"),
        Damage(testDescription: "entry readable by others", text: "chmod 600", write: 73, script: "chmod 644 $ENTRY"),
        Damage(
            testDescription: "entry of a newer format", text: "newer certprov (format 2)", write: 73,
            script: #"printf '\002' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage(
            testDescription: "entry of format 255", text: "newer certprov (format 255)", write: 73,
            script: #"printf '\377' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage(testDescription: "key readable by the group", text: "chmod 600", write: 74, script: "chmod 640 $KEY"),
        Damage(testDescription: "key cut off", text: "31 bytes", write: 74, script: "truncate -s 31 $KEY"),
        Damage(testDescription: "key empty", text: "0 bytes", write: 74, script: "truncate -s 0 $KEY"),
        Damage(testDescription: "key too long", text: "33 bytes", write: 74, script: "truncate -s 33 $KEY"),
        Damage(
            testDescription: "key replaced", text: "another key", write: 0, script: "head -c 32 /dev/urandom >$KEY"),
        Damage(testDescription: "key gone", text: "another key", write: 0, script: "rm $KEY"),
        Damage(testDescription: "entry empty", text: "damaged", write: 0, script: "truncate -s 0 $ENTRY"),
        Damage(testDescription: "entry cut off", text: "damaged", write: 0, script: "truncate -s -1 $ENTRY"),
        Damage(testDescription: "header only", text: "damaged", write: 0, script: "truncate -s 17 $ENTRY"),
        Damage(
            testDescription: "a bit of the content flipped", text: "damaged", write: 0, script: "flip 60"),
        Damage(testDescription: "a bit of the nonce flipped", text: "damaged", write: 0, script: "flip 20"),
        Damage(
            testDescription: "format 0", text: "damaged", write: 0,
            script: #"printf '\000' | dd of=$ENTRY bs=1 seek=8 conv=notrunc"#),
        Damage(testDescription: "not sealed", text: "damaged", write: 0, script: "echo something else >$ENTRY"),
        Damage(
            testDescription: "too large", text: "the limit is 1048576 bytes", write: 73,
            script: "truncate -s 2M $ENTRY"),
    ])
    func isRefusedAndLeftAsItIs(damage: Damage) throws {
        let flip = #"""
            flip() {
                old=$(od -An -tu1 -j$1 -N1 $ENTRY)
                printf "\\$(printf %o $((old ^ 1)))" | dd of=$ENTRY bs=1 seek=$1 conv=notrunc
            }

            """#
        let variables = ["STORE": sandbox.store, "ENTRY": try sandbox.entry(), "KEY": sandbox.store + "/store.key"]
        let made = try sandbox.shell("set -e; \(flip)\(damage.script)", with: variables)
        try #require(made.status == 0, "\(made)")
        let before = try snapshot()

        let message = try sandbox.certprov(["fetch", "--json"] + client).expectFailure("storeReadFailed", status: 74)
        #expect(message.contains(damage.text), "\(message)")
        let list = try sandbox.certprov(["list", "--json"] + client)
        #expect(list.status == 74, "\(list)")
        let document = try list.document("IdentityList")
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
            """#, sandbox.path + "/state")
        try #require(output.status == 0, "\(output)")
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
        let made = try sandbox.shell("chown 65534 \"$1\"", sandbox.store)
        try #require(made.status == 0, "\(made)")
        let message = try sandbox.certprov(["fetch", "--json"] + client).expectFailure("storeReadFailed", status: 74)
        #expect(message.contains("STATE_DIRECTORY") && !message.contains("chown"), "\(message)")
    }
}
