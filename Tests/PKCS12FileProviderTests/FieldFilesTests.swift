import CertificateProviding
import PKCS12FileProvider
import TestSupport
import Testing

/// Every file of the field folder through the API; see `FieldFiles`.
@Suite(.enabled(if: FieldFiles.arePresent, "shared/testdata is not beside the checkout"))
struct FieldFilesTests {
    typealias Row = FieldFiles.Row

    private func provider(_ row: Row, password: String?) throws -> PKCS12FileProvider {
        var parameters = ProviderParameters(["path": .init(row.path)])
        if password != nil { parameters["password-source"] = .init("env:PASSWORD") }
        let provider = try PKCS12FileProvider(
            environment: .testing(variables: password.map { ["PASSWORD": $0] } ?? [:]), parameters: parameters)
        return provider
    }

    @Test(
        "A real file has the outcome that its row in the table says",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: FieldFiles.rows)
    func hasTheOutcomeItsRowSays(row: Row) async throws {
        let provider = try provider(row, password: row.password)
        let list = await provider.listIdentities()
        let codes = list.failures.map(\.code)
        let fetched = await Result { () async throws(ProviderError) in
            try await provider.getCertificate(NoUserInteraction())
        }
        switch row.outcome {
        case "identity":
            #expect(!list.identities.isEmpty, "\(list.failures)")
            let identity = try fetched.get()
            #expect(list.identities.contains { $0.certificateChain == identity.certificateChain })
            #expect(try provider.getStoredCertificate()?.certificateChain == identity.certificateChain)
        case "weak-identity":
            #expect(list.identities.count == 1, "\(list.failures)")
            #expect(list.identities.allSatisfy { $0.certificateChain[0].publicKey.bits < 2048 })
            #expect(fetched.error?.code == .unsupportedAlgorithm)
        case "none":
            #expect(list.identities.isEmpty && codes == [.notFound], "\(list.failures)")
            #expect(fetched.error?.code == .notFound)
        case "unsupported", "unsupported-or-none":
            #expect(list.identities.isEmpty)
            #expect(codes == [.unsupportedAlgorithm], "\(list.failures)")
            #expect(fetched.error?.code == .unsupportedAlgorithm)
        case "refused":
            #expect(list.identities.isEmpty)
            let permitted: [ProviderError.Code] = [.malformedData, .wrongPassword, .unsupportedAlgorithm]
            #expect(!codes.isEmpty && codes.allSatisfy(permitted.contains), "\(list.failures)")
            #expect(fetched.error.map { permitted.contains($0.code) } == true)
        case "either":
            #expect(list.identities.isEmpty != list.failures.isEmpty, "\(list.failures)")
        default:
            Issue.record("the outcome \(row.outcome) is not known")
        }
    }

    @Test(arguments: FieldFiles.rows.filter { $0.wrongPassword == "refused" && $0.outcome.hasSuffix("identity") })
    func refusesAWrongPassword(row: Row) async throws {
        let list = try await provider(row, password: "certainly not it").listIdentities()
        #expect(list.failures.map(\.code) == [.wrongPassword], "\(list.failures)")
    }
}

extension Result {
    var error: Failure? {
        if case .failure(let error) = self { return error }
        return nil
    }

    init(catching body: () async throws(Failure) -> Success) async {
        do throws(Failure) { self = .success(try await body()) } catch { self = .failure(error) }
    }
}
