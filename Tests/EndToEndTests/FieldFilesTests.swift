import TestSupport
import Testing

/// Every file of the field folder through `certprov list` and `certprov fetch`; see `FieldFiles`.
@Suite(.enabled(if: FieldFiles.arePresent, "shared/testdata is not beside the checkout"))
struct FieldFilesTests {
    private let sandbox: Sandbox

    init() throws { sandbox = try Sandbox() }

    private func run(_ command: String, _ row: FieldFiles.Row) throws -> Output {
        var arguments = [command, "--json", "--provider", "pkcs12", "--set", "path=\(row.path)"]
        var variables: [String: String] = [:]
        if let password = row.password {
            arguments += ["--set", "password-source=env:FIELD_PASSWORD"]
            variables["FIELD_PASSWORD"] = password
        }
        return try sandbox.certprov(arguments, with: variables)
    }

    /// The exit statuses of `malformedData` and `unsupportedAlgorithm`, and of `wrongPassword`.
    private static let refusals: [Int32?] = [65, 77]

    @Test("list and fetch of a real file have the outcome that its row says", arguments: FieldFiles.rows)
    func hasTheOutcomeItsRowSays(row: FieldFiles.Row) throws {
        let listed = try run("list", row)
        let fetched = try run("fetch", row)
        let items = try listed.document("IdentityList")["items"].array
        let found = items.count
        switch row.outcome {
        case "identity" where items.contains { $0["status"].string == "expired" }:
            #expect(listed.status == 0, "\(listed)")
            try fetched.expectFailure("expired", status: 66)
        case "identity":
            #expect(listed.status == 0 && found > 0, "\(listed)")
            #expect(fetched.status == 0, "\(fetched)")
            #expect(try fetched.document("Identity")["identity"]["stored"].bool == true)
        case "weak-identity":
            #expect(listed.status == 0 && found == 1, "\(listed)")
            try fetched.expectFailure("unsupportedAlgorithm", status: 65)
        case "none":
            #expect(listed.status == 66 && found == 0, "\(listed)")
            try fetched.expectFailure("notFound", status: 66)
        case "unsupported", "unsupported-or-none":
            #expect(listed.status == 65 && found == 0, "\(listed)")
            try fetched.expectFailure("unsupportedAlgorithm", status: 65)
        case "refused":
            #expect(Self.refusals.contains(listed.status) && found == 0, "\(listed)")
            #expect(Self.refusals.contains(fetched.status), "\(fetched)")
        case "either":
            #expect((listed.status == 0) == (found > 0), "\(listed)")
        default:
            Issue.record("the outcome \(row.outcome) is not known")
        }
    }
}
