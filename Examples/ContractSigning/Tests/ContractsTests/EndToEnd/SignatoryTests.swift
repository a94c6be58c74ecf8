import CertificateProviding
import Foundation
import IdentityStore
import Signing
import Subprocess
import Testing

@testable import Contracts

/// The signatories of a contract, by the built programs, at a host or at two.
@Suite(.timeLimit(.minutes(30))) struct SignatoryTests {
    private let site: Site
    private var folder: CallFolder { site.host.folder }
    /// The folders with the state of each host.
    private let (one, other): (String, String)

    init() async throws {
        let site = try await Site(settings: "Contracts.synchronise = later")
        (one, other) = (site.host.folder["state"], site.host.folder["other"])
        self.site = site
        for state in [one, other] {
            try site.host.folder.write(try await site.token(), to: "token")
            let paired = try await Self.run(
                site, "pair", "--token-source", "file:" + site.host.folder["token"], at: state)
            #expect(paired.status == 0, "\(paired)")
        }
    }

    private static func run(
        _ site: Site, _ arguments: String..., at state: String
    ) async throws -> ContractsProgram.Output {
        try await site.host.run([ContractsProgram.path()] + arguments, with: ["XDG_STATE_HOME": state])
    }

    /// Puts a contract in, which both hosts get.
    private func putIn(mode: Int = 2, contractors: [String]) async throws -> String {
        let id = try await site.putIn(mode: mode, contractors: contractors)
        for state in [one, other] { #expect(try await Self.run(site, "sync", at: state).status == 0) }
        return id
    }

    /// Has a signatory approve at the terminal of a host.
    ///
    /// - Parameter prefix: A command that runs `contracts`.
    private func sign(
        _ id: String, _ signatory: String, _ options: String = "", at state: String, prefix: String = ""
    ) async throws -> ContractsProgram.Output {
        let command = #"\#(prefix) "$CONTRACTS" sign \#(id) --signatory "\#(signatory)" \#(options)"#
        return try await site.host.atTerminal("XDG_STATE_HOME=\(state) \(command)", typing: "y\n")
    }

    private func queue(_ state: String) -> ContractQueue {
        ContractQueue(
            storage: IdentityStore(path: state + "/certprov").storage(for: ProviderID("contracts_")),
            documents: DocumentDirectory(path: state + "/certprov/contracts"))
    }

    private func contract(_ id: String, at state: String) throws -> Contract {
        try #require(try queue(state).contract(id))
    }

    /// Has other programs look at a PDF: each signature is valid, and those before the last one still are.
    private func verify(_ pdf: [UInt8], names: [String]) async throws {
        let verdicts = try await SignatureVerifier(anchors: nil).pdf(SigningContent(pdf))
        #expect(verdicts.map(\.claimedName) == names && verdicts.allSatisfy(\.isIntact))
        let file = try folder.write(pdf, to: "signed.pdf")
        let script =
            #"mkdir -p "$2" && { certutil -d "sql:$2" -L || certutil -d "sql:$2" -N --empty-password; } >&2 && pdfsig -nssdir "$2" "$1""#
        let pdfsig = try await site.host.run(["sh", "-c", script, "sh", file, folder["nss"]])
        #expect(pdfsig.stdout.components(separatedBy: "Signature is Valid").count - 1 == names.count, "\(pdfsig)")
        if let pyHanko = ProcessInfo.processInfo.environment["PYHANKO"] {
            let anchors = ["server/ca.pem", "ca.pem"].filter(folder.exists).flatMap { ["--trust", folder[$0]] }
            let output = try await site.host.run(
                [pyHanko, "sign", "validate", "--pretty-print", "--no-revocation-check", "--trust-replace"] + anchors
                    + [file])
            #expect(output.stdout.components(separatedBy: "judged VALID").count - 1 == names.count, "\(output)")
        }
    }

    @Test("a kill at any step leaves the signatures before it, nobody signs twice, and the server gets each")
    func kills() async throws {
        let (strace, calls) = ("strace -f -qq -o /dev/null", ["fsync", "?renameat,?renameat2,?rename", "fsync"])
        guard try await site.host.run(["sh", "-c", "\(strace) true"]).status == 0 else {
            return print("NOT TESTED: kills of signatories, since strace may not trace here")
        }
        let id = try await putIn(contractors: ["Marie", "Paul"])
        let names = ["Jean Dupont", "Marie Curie", "Paul Curie"]
        var kills = [0, 0, 0]
        for (index, call) in calls.enumerated() {
            var before = try contract(id, at: one).approvals
            for step in 1...100 where before.count == index {
                let prefix = "\(strace) -e trace=\(call) -e inject=\(call):signal=KILL:when=\(step)"
                let output = try await sign(id, names[index], at: one, prefix: prefix)
                let place = Comment("\(names[index]), before \(call) number \(step): \(output)")
                if output.status != 0 { kills[index] += 1 }
                try #require([0, 128 + SIGKILL].contains(output.status) && step < 100, place)
                let after = try contract(id, at: one)
                try #require(after.approvals.count <= index + 1 && after.approvals.starts(with: before), place)
                try #require(output.status != 0 || after.approvals.count == index + 1, place)
                for document in after.version.documents {
                    try #require(try queue(one).hasContent(of: document), place)
                }
                before = after.approvals
            }
            let twice = try await sign(id, names[index], at: one)
            #expect(twice.status != 0 && !twice.stdout.contains("Sign this contract?"), "\(twice)")
            #expect(try contract(id, at: one).approvals == before)
        }
        #expect(kills.allSatisfy { $0 >= 3 }, "\(kills)")
        #expect(try await Self.run(site, "sync", at: one).status == 0)
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
        try await verify(try queue(one).content(of: try contract(id, at: one).version.pdf), names: names)
    }

    @Test(
        "signatories sign without a connection at one host, also by an identity of their own; another host gets that first"
    )
    func hosts() async throws {
        let id = try await putIn(contractors: ["Marie", "Paul", "Irene"])
        let own = try folder.write(try await site.host.identity("Marie Curie"), to: "card.properties")
        site.stop()
        let first = try await sign(id, "C1", at: one)
        #expect(first.status == 0 && first.stdout.contains("What others have signed is not known"), "\(first)")
        let second = try await sign(id, "P1", "--identity \(own)", at: one)
        #expect(second.status == 0 && second.stdout.contains("as CN=Marie Curie?"), "\(second)")
        try await site.start()
        #expect(try await Self.run(site, "sync", at: one).stdout.hasPrefix("sent 1,"))
        let third = try await sign(id, "P2", at: other)
        #expect(third.status == 0 && third.stdout.contains("Signed before by: signatory 1, 2"), "\(third)")
        let before = try contract(id, at: one).approvals
        #expect(
            try contract(id, at: other).approvals.starts(with: before)
                && before.map(\.isByOwnIdentity) == [false, true])

        // At the first host meanwhile, without a connection: two updates of one document.
        site.stop()
        #expect(try await sign(id, "P3", at: one).status == 0)
        let late = try #require(try contract(id, at: one).approvals.last)
        try await site.start()
        #expect(try await Self.run(site, "sync", at: other).stdout.hasPrefix("sent 1,"))
        let conflict = try await Self.run(site, "sync", at: one)
        #expect(conflict.stderr.contains("contracts resolve"), "\(conflict)")
        #expect(try contract(id, at: one).approvals == before + [late])
        #expect(try await Self.run(site, "resolve", id, "--keep", "mine", at: one).status == 75)
        #expect(try await Self.run(site, "resolve", id, "--keep", "server", at: one).status == 0)
        try await verify(
            try queue(one).content(of: late.pdf), names: ["Jean Dupont", "Marie Curie", "Irene Curie"])
        let last = try await sign(id, "P3", at: one)
        #expect(last.status == 0 && last.stdout.contains("Signed before by: signatory 1, 2, 3"), "\(last)")
        #expect(try await Self.run(site, "sync", at: one).status == 0)
        #expect(try await site.states(of: id) == ("toValidate", "toValidate"))
        #expect(try contract(id, at: one).superseded.last?.last == late)
        _ = try await site.office("contracts/\(id)/signed.pdf", ["--output", folder["last.pdf"]])
        try await verify(
            Array(try Data(contentsOf: URL(filePath: folder["last.pdf"]))),
            names: ["Jean Dupont", "Marie Curie", "Paul Curie", "Irene Curie"])
    }

    @Test(
        "one who declines, at a host that did not know of the signatures before, ends the contract everywhere, with the reason"
    )
    func declined() async throws {
        let id = try await putIn(contractors: ["Marie"])
        #expect(try await sign(id, "C1", at: one).status == 0)
        #expect(try await Self.run(site, "sync", at: one).status == 0)
        let signed = try await Self.run(
            site, "abandon", id, "--signatory", "C1", "--reason", "No", "--yes", at: other)
        #expect(signed.status == 66 && signed.stderr.contains("Marie Curie (P1)"), "\(signed)")
        let declined = try await Self.run(
            site, "abandon", id, "--signatory", "P1", "--reason", "Too dear", "--yes", at: other)
        #expect(declined.status == 0 && declined.stdout.contains("signatory 2 declines: Too dear"), "\(declined)")
        for state in [other, one] {
            #expect(try await Self.run(site, "sync", at: state).status == 0)
            let contract = try contract(id, at: state)
            #expect(contract.state == .abandoned && contract.approvals.count == 1 && !contract.isUnsent)
            #expect(contract.version.abandonment == ContractAbandonment(signatory: 1, reason: "Too dear"))
        }
        let answer = try await site.office("contracts/\(id)")
        let there = try #require(try JSONSerialization.jsonObject(with: Data(answer.utf8)) as? [String: Any])
        #expect(there["state"] as? String == "abandoned" && there["approved"] as? Int == 1, "\(there)")
        let abandonment = try #require(there["abandonment"] as? [String: Any])
        #expect(abandonment["signatory"] as? Int == 1 && abandonment["reason"] as? String == "Too dear")
        #expect(try await sign(id, "P1", at: one).status == 75)
    }
}
