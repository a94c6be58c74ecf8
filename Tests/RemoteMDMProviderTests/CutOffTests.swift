import CertificateProviding
import Enrolment
import RemoteMDMProvider
import TestSupport
import Testing

/// Every answer of a renewal ends after each of its bytes, those of its headers and those of its body; in `make test` after
/// some of them.
@Suite(.timeLimit(.minutes(60))) struct CutOffTests {
    private static let lanes = 3
    /// From one cut of a lane to its next.
    private static let step = lanes * TestLength.rounds(7, soak: 1)

    @Test(
        "A truncated answer fails the renewal and leaves the current identity in place",
        arguments: [("cacerts-", 500), ("csrattrs-", 60), ("", 500)])
    func anAnswerThatIsCutOffIsNone(operation: String, shortest: Int) async throws {
        let server = try ESTResponder([], .init(wishes: ["hash:sha384"], hasIntermediate: false))
        let wholes = try await withThrowingTaskGroup(of: Int.self) { lanes in
            for lane in 1...Self.lanes {
                lanes.addTask { try await Self.shortestWhole("fault-\(operation)cut", from: lane, on: server) }
            }
            return try await lanes.reduce(into: []) { $0.append($1) }
        }
        let (first, last) = (try #require(wholes.min()), try #require(wholes.max()))
        #expect(first > shortest && last < 5000)
        // Signatures differ in their length by some bytes.
        #expect(last - first < 20 + Self.step)
        // Each lane has enrolled with one key and renewed with one, however often that took.
        let keys = server.requests.compactMap(\.csrKeySHA256)
        #expect(Set(keys).count == 2 * Self.lanes)
    }

    /// Renews with longer and longer answers, until one is whole.
    /// - Returns: Its length.
    private static func shortestWhole(_ fault: String, from first: Int, on server: ESTResponder) async throws -> Int {
        let storage = OneIdentity()
        let identity = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        var length = first
        while length < 5000 {
            let provider = try server.provider(storage: storage, label: "\(fault)-\(length)")
            do {
                try server.verify(try await provider.getCertificate(NoUserInteraction()))
                return length
            } catch let error as ProviderError {
                #expect([.unavailable, .protocolError].contains(error.code), "\(fault)-\(length): \(error)")
                #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
            }
            length += step
        }
        return length
    }
}
