import Foundation
import Glibc
import TestSupport
import Testing

/// `explain` and `check` say beforehand what `fetch` does.
@Suite struct ForecastTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    /// A configuration that lists what it should and whose `fetch` fails all the same.
    struct Doubt: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var files: [String]
        var alias: String?
        var code: String
        var status: Int32
        /// Whether the next provider would be tried.
        var fallthroughCodes = false
    }

    @Test(arguments: [
        Doubt(
            testDescription: "no such alias", files: ["a"], alias: "nosuch", code: "notFound", status: 66,
            fallthroughCodes: true),
        Doubt(testDescription: "two identities", files: ["a", "b"], code: "configurationInvalid", status: 78),
        Doubt(
            testDescription: "a second file that cannot be read", files: ["a", "empty"], code: "wrongPassword",
            status: 77),
    ])
    func explainAndCheckForetellTheFailureOfFetch(doubt: Doubt) throws {
        mkdir(sandbox.path + "/p12", 0o700)
        for name in doubt.files { _ = try sandbox.copy("\(name).p12", to: "p12/\(name).p12") }
        let arguments =
            ["--json"] + adHoc(sandbox.path + "/p12") + (doubt.alias.map { ["--set", "alias=\($0)"] } ?? [])
        let message = try sandbox.certprov(["fetch"] + arguments).expectFailure(doubt.code, status: doubt.status)
        let check = try sandbox.certprov(["check"] + arguments).expect(doubt.status)
        let errors = try check.document("CheckReport")["items"].array.filter { $0["severity"].string == "error" }
        #expect(errors.map { $0["detail"].string } == [message], "\(check)")
        let explanation = try sandbox.certprov(["explain"] + arguments).document("Explanation")
        #expect(explanation["chosen"].isNull)
        let decision = explanation["decisions"].array.last
        #expect(decision?["outcome"].string == (doubt.fallthroughCodes ? "movedOn" : "stopped"), "\(explanation)")
        #expect(decision?["error"]["message"].string == message, "\(explanation)")
    }

    @Test func explainNamesTheIdentityThatFetchTakes() throws {
        mkdir(sandbox.path + "/p12", 0o700)
        for name in ["a", "b", "soon"] { _ = try sandbox.copy("\(name).p12", to: "p12/\(name).p12") }
        let arguments = ["--json"] + adHoc(sandbox.path + "/p12", "--set", "alias=b")
        let explanation = try sandbox.certprov(["explain"] + arguments).document("Explanation")
        #expect(explanation["decisions"].array.last?["reason"].string == "it finds 3 identities and would use 'b'")
        #expect(try sandbox.certprov(["check"] + arguments).status == 0)
        let fetched = try sandbox.certprov(["fetch"] + arguments).document("Identity")
        #expect(fetched["identity"]["alias"].string == "b")
        // The chosen identity stays in use, whatever becomes of the rest.
        unlink(sandbox.path + "/p12/b.p12")
        #expect(try sandbox.certprov(["fetch"] + arguments).status == 0)
        try sandbox.certprov(["check"] + arguments).expect(stdout: "No identity matches the alias 'b'")
    }

    @Test func checkSaysWhereAPersonWouldBeAsked() throws {
        let arguments = adHoc(Fixtures.path("ec.p12"), password: "prompt")
        let explanation = try sandbox.certprov(["explain", "--json"] + arguments).document("Explanation")
        #expect(explanation["chosen"].string == "pkcs12", "\(explanation)")
        #expect(explanation["decisions"].array.last?["reason"].string == "the user would be asked")
        let check = try sandbox.certprov(["check", "--json"] + arguments)
        let items = try check.document("CheckReport")["items"].array
        #expect(check.status == 77 && items.last?["severity"].string == "error", "\(check)")
    }
}
