import CertificateProviding
import Foundation
import IdentityStore
import Subprocess
import Testing

@testable import Contracts

/// The built programs, over mutual TLS.
@Suite(.timeLimit(.minutes(30))) struct PairedHostTests {
    @Test("a contract goes from curl to the host, is signed there, and comes back; the token is in no file or log")
    func thereAndBack() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        let id = try await site.putIn()
        let early = try await site.host("sync")
        #expect(early.status == 66 && early.stderr.contains("contracts pair"), "\(early)")
        let paired = try await site.pair()
        #expect(paired.stdout == "This host is paired for alice@example.com.\n", "\(paired)")
        #expect(try await site.host("sync").stdout == "sent 0, received 1, removed 0\n")
        try await site.sign(id)
        #expect(try await site.states(of: id) == ("toValidate", "inProgress"))
        #expect(try await site.host("sync").stdout == "sent 1, received 0, removed 0\n")
        #expect(try await site.host("sync").stdout == "sent 0, received 0, removed 0\n")
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
        _ = try await site.office("contracts/\(id)/validate", ["--request", "POST"])
        #expect(try await site.host("sync").stdout == "sent 0, received 1, removed 0\n")
        #expect(try await site.states(of: id) == ("validated", "validated"))
        #expect(try await site.host("show", id).stdout.contains("signature of the evidence: /"))

        let token = try String(contentsOfFile: site.host.folder["token"], encoding: .utf8)
        let found = try await site.host.run(
            ["grep", "-rlF", "--exclude=token", token, site.host.folder.path])
        #expect(found.status == 1, "the token is in \(found.stdout)")

        let unpaired = try await site.host("unpair", "--yes")
        #expect(unpaired.status == 0, "\(unpaired)")
        #expect(try await site.host("list", "--json").json()["items"] as? [String] == [])
    }

    @Test("after thirty kills of a synchronisation, nothing is lost and nothing is there twice")
    func kills() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        #expect(try await site.pair().status == 0)
        var ids: [String] = []
        for number in 1...3 { ids.append(try await site.putIn(number: number)) }
        #expect(try await site.host("sync").status == 0)
        for number in 11...13 { ids.append(try await site.host.open(Self.file(site, number))) }
        for id in ids { try await site.sign(id) }
        for round in 0..<30 {
            // Later and later in the run, which takes some tenths of a second.
            let end = ContinuousClock.now + .milliseconds(15 * round)
            try await site.host.killed("sync", round.isMultiple(of: 2) ? "--full" : "--verbose") {
                ContinuousClock.now >= end
            }
            let listed = try await site.host("list", "--json").json()["items"] as? [[String: Any]]
            #expect(Set(listed?.compactMap { $0["id"] as? String } ?? []) == Set(ids), "after kill \(round)")
        }
        let last = try await site.host("sync", "--full", "--json")
        #expect(last.status == 0, "\(last)")
        #expect(try last.json()["conflicts"] as? [String] == [])
        for id in ids { #expect(try await site.states(of: id) == ("toValidate", "toValidate"), "\(id)") }
    }

    private static func file(_ site: Site, _ number: Int) throws -> String {
        try site.host.folder.write(SampleFile.bytes(number: number), to: "\(number).sellsign")
    }

    @Test("the pairing's key may be in a token: pairing, signing and synchronising")
    func keyInAToken() async throws {
        let site = try await Site()
        let folder = site.host.folder
        try folder.write("directories.tokendir = \(folder["tokens"])\nlog.level = ERROR\n", to: "softhsm2.conf")
        try FileManager.default.createDirectory(atPath: folder["tokens"], withIntermediateDirectories: true)
        try folder.write("123456\n", to: "pin")
        let token = try await site.host.run(
            [
                "softhsm2-util", "--init-token", "--free", "--label", "host", "--so-pin", "12345678", "--pin", "123456",
            ])
        #expect(token.status == 0, "\(token)")
        let uri =
            "pkcs11:token=host?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=file:\(folder["pin"])"
        let file = try String(contentsOfFile: folder["host.properties"], encoding: .utf8)
        try folder.write(
            "\(file)Contracts.key = \(uri)\nContracts.synchronise = now\n", to: "host.properties")
        let id = try await site.putIn()
        let paired = try await site.pair()
        #expect(paired.status == 0, "\(paired)")
        #expect(try await site.host("sync").status == 0)
        let output = try await site.host.atTerminal("\"$CONTRACTS\" sign \(id)", typing: "y\n")
        #expect(output.status == 0, "\(output)")
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
    }

    @Test("a pairing that the server has ended is a typed error, and the signature waits for the next pairing")
    func revoked() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        #expect(try await site.pair().status == 0)
        let id = try await site.putIn()
        #expect(try await site.host("sync").status == 0)
        try await site.sign(id)
        _ = try await site.office("pairings?email=alice@example.com", ["--request", "DELETE"])
        let refused = try await site.host("sync", "--json")
        #expect(refused.status == 77, "\(refused)")
        #expect(try refused.json(true)["code"] as? String == "rejected")
        #expect(try refused.json(true)["reason"] as? String == "rejectedCertificate")
        let kept = try await site.host("unpair", "--yes")
        #expect(kept.status == 75 && kept.stderr.contains(id), "\(kept)")
        #expect(try await site.pair().status == 0)
        #expect(try await site.host("sync").stdout.contains("sent 1"))
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
    }

    @Test("a signature that the server cannot take is kept until a person deletes it")
    func decisions() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        #expect(try await site.pair().status == 0)
        let (abandoned, deleted) = (try await site.putIn(number: 1), try await site.putIn(number: 2))
        #expect(try await site.host("sync").status == 0)
        for id in [abandoned, deleted] { try await site.sign(id) }
        _ = try await site.office("contracts/\(abandoned)/abandon", ["--request", "POST"])
        _ = try await site.office("contracts/\(deleted)", ["--request", "DELETE"])
        let sync = try await site.host("sync")
        #expect(sync.stderr.contains("state abandoned") && sync.stderr.contains("is deleted"), "\(sync)")
        let early = try await site.host("unpair", "--yes")
        #expect(early.status == 75 && early.stderr.contains("contracts resolve"), "\(early)")
        let mine = try await site.host("resolve", abandoned, "--keep", "mine")
        #expect(mine.status == 75 && mine.stderr.contains("--keep server"), "\(mine)")
        #expect(try await site.host("resolve", abandoned, "--keep", "server").stdout.contains("State: abandoned"))
        #expect(try await site.host("show", abandoned).stdout.contains("replaced by the server's version"))
        let asked = try await site.host("resolve", deleted, "--keep", "server")
        #expect(asked.status == 77 && asked.stderr.contains("--yes"), "\(asked)")
        #expect(try await site.host("resolve", deleted, "--keep", "server", "--yes").stdout.contains("is removed"))
        let kept = try await site.host("unpair", "--yes")
        #expect(kept.status == 75 && kept.stderr.contains("is here only") && kept.stderr.contains("--force"), "\(kept)")
        #expect(try await site.host("unpair", "--yes", "--force").status == 0)
    }

    @Test(
        "a URL of another program does not bring the host to another account, and a pairing stays when it is repeated")
    func otherAccount() async throws {
        let site = try await Site()
        #expect(try await site.pair().status == 0)
        let other = try await site.token(for: "bob@example.com")
        let url = "sellsign://auth?token=" + (other.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? "")
        let refused = try await site.host("open", url)
        #expect(refused.status == 77 && refused.stderr.contains("[interactionRequired]"), "\(refused)")
        let declined = try await site.host.atTerminal("\"$CONTRACTS\" open '\(url)'", typing: "n\n")
        #expect(declined.status == 77 && declined.stdout.contains("Leave alice@example.com"), "\(declined)")
        #expect(try await site.pair().stdout.contains("already. The token was not used."))
        let moved = try await site.host.atTerminal("\"$CONTRACTS\" open '\(url)'", typing: "y\n")
        #expect(moved.status == 0 && moved.stdout.contains("paired for bob@example.com"), "\(moved)")
    }

    @Test("a URL of another program pairs only with a person who sees the server and the account, and tells its caller")
    func pairedByURL() async throws {
        let site = try await Site()
        let token = try await site.token().addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? ""
        let url = "sellsign://auth?token=\(token)&success_callback_url=myapp://done&error_callback_url=myapp://error"
        let silent = try await site.host("open", url)
        #expect(silent.status == 77 && silent.stderr.contains("[interactionRequired]"), "\(silent)")
        let opened = try site.host.folder.opened()
        #expect(opened.count == 1 && opened[0].hasPrefix("myapp://error?message="), "\(opened)")
        let declined = try await site.host.atTerminal("\"$CONTRACTS\" open '\(url)'", typing: "n\n")
        #expect(declined.status == 77 && declined.stdout.contains("The host is not paired."), "\(declined)")
        #expect(try await site.host("sync").status == 66)
        // The token is not used up.
        let paired = try await site.host.atTerminal("\"$CONTRACTS\" open '\(url)'", typing: "y\n")
        #expect(
            paired.status == 0 && paired.stdout.contains("with localhost:")
                && paired.stdout.contains("for alice@example.com. Pair it?"),
            "\(paired)")
        #expect(try site.host.folder.opened().last == "myapp://done")
        #expect(try await site.host("sync").status == 0)
    }

    @Test("a signature that is here only keeps the host from another account, before anything is changed")
    func otherAccountWithASignature() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        #expect(try await site.pair().status == 0)
        let id = try await site.putIn()
        #expect(try await site.host("sync").status == 0)
        try await site.sign(id)
        _ = try await site.office("contracts/\(id)/abandon", ["--request", "POST"])
        _ = try await site.host("sync")
        #expect(try await site.host("resolve", id, "--keep", "server").status == 0)
        try site.host.folder.write(try await site.token(for: "bob@example.com"), to: "other")
        let refused = try await site.host("pair", "--token-source", "file:" + site.host.folder["other"])
        #expect(refused.status == 75 && refused.stderr.contains("is here only"), "\(refused)")
        #expect(try await site.host("sync").status == 0)
        #expect(try await site.pair().stdout.contains("already. The token was not used."))
    }

    @Test("an identity of another account, which a kill in a pairing has left, is not taken for this one's")
    func identityOfAnotherAccount() async throws {
        let site = try await Site()
        #expect(try await site.pair().status == 0)
        let state = site.host.folder["state/certprov"]
        let queue = ContractQueue(
            storage: IdentityStore(path: state).storage(for: ProviderID("contracts_")),
            documents: DocumentDirectory(path: state + "/contracts"))
        try queue.changeState { $0.account = "bob@example.com" }
        #expect(try await site.host("sync").status == 75)
        try site.host.folder.write(try await site.token(for: "bob@example.com"), to: "other")
        let paired = try await site.host("pair", "--token-source", "file:" + site.host.folder["other"])
        #expect(paired.status == 0 && paired.stdout.contains("paired for bob@example.com."), "\(paired)")
        #expect(try await site.host("sync").status == 0)
    }

    @Test("two contracts that are too many values for one page come one by one")
    func largePage() async throws {
        let site = try await Site()
        #expect(try await site.pair().status == 0)
        let zeros = #""options": [0\#(String(repeating: ",0", count: 599_999))]"#
        let file = String(decoding: SampleFile.bytes(), as: UTF8.self).replacing(#""options": []"#, with: zeros)
        try site.host.folder.write(file, to: "large.sellsign")
        for _ in 1...2 {
            _ = try await site.office(
                "contracts?email=alice@example.com", ["--data-binary", "@" + site.host.folder["large.sellsign"]])
        }
        let output = try await site.host("sync")
        #expect(output.stdout == "sent 0, received 2, removed 0\n", "\(output)")
    }

    @Test("a call that leaves contracts out is told so; a wrong path of the server is not the token's fault")
    func advice() async throws {
        let site = try await Site()
        let file = try String(contentsOfFile: site.host.folder["host.properties"], encoding: .utf8)
        let elsewhere = try site.host.folder.write(
            file.replacing(site.url, with: site.url + "/elsewhere"), to: "elsewhere.properties")
        try site.host.folder.write(try await site.token(), to: "token")
        let wrong = try await site.host(
            "pair", "--token-source", "file:" + site.host.folder["token"], "--config", elsewhere)
        #expect(wrong.status != 0 && wrong.stderr.contains("Contracts.url"), "\(wrong)")
        #expect(!wrong.stderr.contains("the token is wrong"), "\(wrong)")
        #expect(try await site.pair().status == 0)
        _ = try await site.putIn()
        #expect(try await site.host("sync").status == 0)
        let directory = site.host.folder["state"] + "/certprov/contracts"
        let damage = #"cd "$1" && for f in $(grep -l customer *); do echo >"$f"; done"#
        #expect(try await site.host.run(["sh", "-c", damage, "sh", directory]).status == 0)
        let call = "sellsign://sync/incremental?success_callback_url=myapp://done&error_callback_url=myapp://error"
        #expect(try await site.host("open", call).status == 74)
        #expect(try site.host.folder.opened().first?.hasPrefix("myapp://error?message=") == true)
        #expect(try await site.host("sync", "--full").stdout == "sent 0, received 1, removed 0\n")
    }

    @Test("a pairing whose certificate is over says so")
    func expired() async throws {
        let site = try await Site(["--certificate-seconds", "40"])
        #expect(try await site.pair().status == 0)
        // The certificate is over then.
        try await Task.sleep(for: .seconds(41))
        let output = try await site.host("sync")
        #expect(output.stderr.contains("has expired") && output.stderr.contains("contracts pair"), "\(output)")
    }

    @Test("the pairing's identity is renewed by synchronisations, and nothing is lost")
    func renewal() async throws {
        let site = try await Site(["--certificate-seconds", "60"], settings: "Contracts.synchronise = later")
        let id = try await site.putIn()
        let token = try site.host.folder.write(try await site.token(), to: "token")
        // A process: the threads that run tasks may be other tests' for longer than a certificate is valid.
        let script = #"""
            "$CONTRACTS" pair --token-source "file:$3" || exit
            until grep -q renewed "$1"; do "$CONTRACTS" sync || exit; sleep 0.5; done
            : >"$3.screen"
            { until tail -c 2 "$3.screen" | grep -q '] '; do sleep 0.1; done; echo y; } |
                script -qef -E always -c "\"\$CONTRACTS\" sign $2" "$3.screen" || exit
            "$CONTRACTS" sync
            """#
        let output = try await site.host.run(
            ["sh", "-c", script, "sh", site.host.folder["log"], id, token],
            with: ["CONTRACTS": ContractsProgram.path()])
        #expect(output.status == 0 && output.stdout.contains("sent 1"), "\(output)")
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
    }
}
