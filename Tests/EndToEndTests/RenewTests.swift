import CertificateProviding
import Foundation
import TestSupport
import Testing

/// `certprov renew`, on a PKCS#12 file that is replaced.
@Suite struct RenewTests {
    private let sandbox: Sandbox
    private let authority: TestAuthority
    private let file: String

    init() throws {
        sandbox = try Sandbox()
        authority = try TestAuthority()
        file = sandbox.path + "/client.p12"
    }

    /// Puts a certificate into the file.
    @discardableResult
    private func put(_ name: String, daysOld: Double, lifetime days: Double = 100) throws -> Identity {
        let start = Date(timeIntervalSinceNow: -daysOld * 86_400)
        let identity = try authority.issue(name, notBefore: start, notAfter: start.addingTimeInterval(days * 86_400))
        let key = try #require(identity.key.exporter)
        try sandbox.write(try key.pkcs8Representation().withUnsafeBytes { Array($0) }, to: "key.der")
        try sandbox.write(identity.certificate.pemRepresentation, to: "leaf.pem")
        let script = #"""
            cd "$1" && openssl pkey -inform DER -in key.der -out key.pem &&
            openssl pkcs12 -export -inkey key.pem -in leaf.pem -passout env:P12_PASSWORD -out new && mv new "$2"
            """#
        try sandbox.shell(script, sandbox.path, file).require()
        return identity
    }

    /// Stores what the file has.
    private func fetch() throws {
        try sandbox.certprov(["fetch"] + adHoc(file)).require()
    }

    private func renew(_ options: String...) throws -> Output {
        try sandbox.certprov(["renew", "--json"] + adHoc(file) + options)
    }

    private func storedSerialNumber() throws -> String? {
        // A dry run asks no provider.
        try renew("--dry-run").document("Renewal")["identity"]["serialNumber"].string
    }

    /// By the renewal point, where one is configured; else by how long a person has left. A certificate is due up to a
    /// tenth of the way to that point before it.
    @Test(arguments: [
        (100.0, 85.0, nil, nil), (100, 87, nil, "expires soon"), (1, 0.1, nil, nil), (1, 0.6, nil, nil),
        (1, 0.7, nil, "expires soon"), (100, 40, "0.5", nil), (100, 51, "0.5", "renewal has been due since"),
        (100, 91, "10d", "renewal has been due since"), (100, 78, "10d", nil), (1, 0.1, "0.9", nil),
    ])
    func checkWarnsWhenSomebodyHasToAct(lifetime: Double, age: Double, renewAt: String?, warning: String?) throws {
        try put("client", daysOld: age, lifetime: lifetime)
        let plan = renewAt.map { ["--set", "renew-at=\($0)"] } ?? []
        let output = try sandbox.certprov(["check", "--json"] + adHoc(file) + plan).expect()
        let last = try #require(try output.document("CheckReport")["items"].array.last)
        #expect(last["severity"].string == (warning == nil ? "ok" : "warning"), "\(output)")
        if let warning { #expect(last["detail"].string?.contains(warning) == true, "\(output)") }
    }

    @Test("renew does not change an identity that is not due")
    func whatIsNotDueStays() throws {
        let stored = try put("client", daysOld: 59)
        try fetch()
        for options in [[], ["--dry-run"]] {
            let output = try sandbox.certprov(["renew", "--json"] + adHoc(file) + options).expect(stderr: "")
            let document = try output.document("Renewal")
            #expect(document["result"].string == "notDue")
            #expect(document["identity"]["serialNumber"].string == stored.certificate.serialNumberText)
            let renewAt = try #require(try document["renewAt"].string.map { try Date($0, strategy: .iso8601) })
            let days = renewAt.timeIntervalSince(stored.certificate.notValidBefore) / 86_400
            #expect((59.9...66.7).contains(days))
        }
        #expect(try storedSerialNumber() == stored.certificate.serialNumberText)
    }

    @Test("A file that is replaced in week two is taken by renew and by fetch, due or not")
    func aReplacedFileIsTaken() throws {
        try put("client", daysOld: 14, lifetime: 365)
        try fetch()
        let second = try put("client", daysOld: 1, lifetime: 365)
        let output = try renew()
        let document = try output.document("Renewal")
        #expect(output.status == 0 && document["result"].string == "replaced", "\(output)")
        #expect(document["identity"]["serialNumber"].string == second.certificate.serialNumberText)
        #expect(try renew().document("Renewal")["result"].string == "notDue")

        let third = try put("client", daysOld: 0, lifetime: 365)
        try fetch()
        #expect(try storedSerialNumber() == third.certificate.serialNumberText)
        // One that is damaged, expired or gone leaves the stored one.
        try sandbox.write("damaged", to: file)
        for command in ["renew", "fetch"] {
            try sandbox.certprov([command] + adHoc(file)).expect(stderr: "the stored identity stays")
        }
        try put("client", daysOld: 101)
        try sandbox.certprov(["renew"] + adHoc(file)).expect(stderr: "it expired on")
        unlink(file)
        #expect(try renew().stderr.isEmpty)
        #expect(try storedSerialNumber() == third.certificate.serialNumberText)
    }

    @Test("renew replaces an identity that is due")
    func whatIsDueIsRenewed() throws {
        let old = try put("client", daysOld: 67)
        try fetch()
        let new = try put("client", daysOld: 1)
        let forecast = try renew("--dry-run").document("Renewal")
        #expect(forecast["result"].string == "due")
        #expect(forecast["identity"]["serialNumber"].string == old.certificate.serialNumberText)
        #expect(try storedSerialNumber() == old.certificate.serialNumberText, "a dry run asks nobody")

        let document = try renew().expect().document("Renewal")
        #expect(document["result"].string == "replaced")
        #expect(document["identity"]["serialNumber"].string == new.certificate.serialNumberText)
        #expect(try storedSerialNumber() == new.certificate.serialNumberText)
        #expect(try renew().document("Renewal")["result"].string == "notDue")
    }

    @Test func peopleSeeWhen() throws {
        try put("client", daysOld: 67)
        try fetch()
        let output = try sandbox.certprov(["renew", "--dry-run"] + adHoc(file))
        let lines = output.stdout.split(separator: "\n")
        #expect(output.status == 0 && lines.count == 2, "\(output)")
        #expect(lines[0].hasPrefix("PROVIDER") && lines[0].contains("RENEWAL"))
        #expect(lines[1].hasPrefix("pkcs12") && lines[1].hasSuffix("due"))
    }

    @Test func theSameCertificateIsStillToCome() throws {
        let old = try put("client", daysOld: 67)
        try fetch()
        try renew().expectFailure("pending", status: 75)
        #expect(try storedSerialNumber() == old.certificate.serialNumberText)
    }

    @Test func aFailureKeepsTheOldOne() throws {
        let old = try put("client", daysOld: 67)
        try fetch()
        try sandbox.write("damaged", to: file)
        try renew().expectFailure("malformedData", status: 65)
        unlink(file)
        try renew().expectFailure("fileNotFound", status: 66)
        #expect(try storedSerialNumber() == old.certificate.serialNumberText)
    }

    @Test func aNewCertificateThatIsExpiredReplacesNothing() throws {
        let old = try put("client", daysOld: 67)
        try fetch()
        try put("client", daysOld: 101)
        let message = try renew().expectFailure("pending", status: 75)
        #expect(message.contains("it expired on") && message.contains(file))
        #expect(try sandbox.certprov(["fetch", "--force"] + adHoc(file)).status == 75)
        #expect(try storedSerialNumber() == old.certificate.serialNumberText)
    }

    @Test("An identity that has expired is an error of its own, until its source has another one")
    func anExpiredIdentityIsAnError() throws {
        try put("client", daysOld: 101)
        // From the second on it is a stored one.
        for command in [
            ["fetch"], ["fetch"], ["fetch", "--force"], ["renew"], ["fetch", "--out", sandbox.path + "/out"],
        ] {
            let message = try sandbox.certprov(command + ["--json"] + adHoc(file)).expectFailure("expired", status: 66)
            #expect(
                message.contains(file) && message.contains("CN=client") && !message.contains("--force"), "\(message)")
        }
        #expect(!FileManager.default.fileExists(atPath: sandbox.path + "/out/current"))
        let check = try sandbox.certprov(["check", "--json"] + adHoc(file))
        let items = try check.document("CheckReport")["items"].array
        #expect(check.status == 66 && items.contains { $0["code"].string == "expired" }, "\(check)")
        let new = try put("client", daysOld: 1)
        try fetch()
        #expect(try storedSerialNumber() == new.certificate.serialNumberText)
        #expect(try sandbox.certprov(["check"] + adHoc(file)).status == 0)
    }

    @Test("For the unit, a renewal that is pending is a success, and one of an expired identity a failure")
    func theUnitFailsForAnExpiredIdentity() throws {
        let unit = try Page("Scripts/systemd/certprov-renew@.service").text
        let successes = try #require(unit.firstMatch(of: #/(?m)^SuccessExitStatus=(.*)$/#)).1.split(separator: " ")
        try put("client", daysOld: 90)
        try fetch()
        let pending = try #require(try renew().status)
        #expect(successes.contains("\(pending)"))
        try put("other", daysOld: 101)
        try #require(try sandbox.certprov(["delete", "--yes"] + adHoc(file)).status == 0)
        #expect(try sandbox.certprov(["fetch"] + adHoc(file)).status == 66)
        let status = try #require(try renew().status)
        #expect(status == 66 && !successes.contains("\(status)"))
    }

    @Test("check --expires-within fails in time, and names the identity")
    func checkFailsInTime() throws {
        try put("client", daysOld: 90)
        try fetch()
        for (limit, status) in [("14d", 66), ("241h", 66), ("9d", 0), ("36h", 0), ("soon", 64), ("0d", 64)] {
            let output = try sandbox.certprov(["check", "--json", "--expires-within", limit] + adHoc(file)).expect(
                Int32(status), about: limit)
            guard status == 66 else { continue }
            let document = try output.document("CheckReport")
            let item = document["items"].array.first { $0["severity"].string == "error" }
            #expect(document["ok"].bool == false && item?["code"].string == "expired")
            #expect(item?["detail"].string?.contains("CN=client") == true, "\(output)")
        }
    }

    /// A third of its life is an hour and a half.
    @Test("check and renew warn of a certificate that lives too short for the timer")
    func aSlowTimerIsSaid() throws {
        try put("client", daysOld: 0.01, lifetime: 0.2)
        try fetch()
        for (every, isSlow) in [([String](), true), (["--every", "1h"], true), (["--every", "10m"], false)] {
            let check = try sandbox.certprov(["check", "--json"] + every + adHoc(file))
            let items = try check.document("CheckReport")["items"].array
            #expect(check.status == 0 && items.contains { $0["what"].string == "pkcs12 timer" } == isSlow, "\(check)")
            let renew = try sandbox.certprov(["renew", "--json"] + every + adHoc(file))
            let warnings = try renew.document("Renewal")["warnings"].array.compactMap(\.string)
            #expect(renew.status == 0 && warnings.contains { $0.contains("--every") } == isSlow, "\(renew)")
        }
        try put("client", daysOld: 1)
        try #require(try sandbox.certprov(["fetch", "--force"] + adHoc(file)).status == 0)
        #expect(try renew().document("Renewal")["warnings"].array.isEmpty)
    }

    @Test func withoutAStoredIdentityThereIsNothingToRenew() throws {
        try put("client", daysOld: 67)
        for options in [[], ["--dry-run"]] {
            let output = try sandbox.certprov(["renew", "--json"] + adHoc(file) + options)
            #expect(try output.expectFailure("notFound", status: 66).contains("certprov fetch"))
        }
    }

    @Test func thePropertyFileSaysWhen() throws {
        try put("client", daysOld: 40)
        func configure(_ renewAt: String) throws -> String {
            try sandbox.configure(
                pkcs12: file, "CertificateProvider.pkcs12.renew-at=\(renewAt)", to: "clienthub.properties")
        }
        let configuration = try configure("66%")
        #expect(try sandbox.certprov("fetch", "--config", configuration).status == 0)
        for (renewAt, result) in [("66%", "notDue"), ("0.4", "due"), ("61d", "due"), ("50d", "notDue")] {
            let output = try sandbox.certprov("renew", "--dry-run", "--json", "--config", try configure(renewAt))
            let document = try output.document("Renewal")
            #expect(document["result"].string == result, "\(renewAt): \(output)")
            #expect(document["rule"].string == "renew-at")
        }
        let wrong = try sandbox.certprov("renew", "--json", "--config", try configure("soon"))
        let message = try wrong.expectFailure("configurationInvalid", status: 78)
        #expect(message.hasPrefix("\(configuration):4: "), "\(message)")
    }

    @Test func everyProviderDocumentsTheParameter() throws {
        let document = try sandbox.certprov("providers", "--json").document("ProviderList")
        for provider in document["items"].array {
            #expect(provider["parameters"].array.filter { $0["name"].string == "renew-at" }.count == 1, "\(provider)")
        }
    }
}
