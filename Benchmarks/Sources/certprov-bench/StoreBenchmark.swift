import CertificateProviding

/// `getStoredCertificate` of a provider that has answered before (warm), and of a new one (cold).
struct StoreBenchmark {
    let provider: any CertificateProvider
    let rounds: Int

    init(_ provider: any CertificateProvider, rounds: Int) {
        self.provider = provider
        self.rounds = rounds
    }

    func run(making makeProvider: () throws -> any CertificateProvider) async throws {
        _ = try await provider.getCertificate(NoUserInteraction())
        let clock = ContinuousClock()
        var cold: [Double] = []
        for _ in 0..<200 {
            let fresh = try makeProvider()
            let time = try clock.measure { try Self.read(fresh) }
            cold.append(seconds(time) * 1e6)
        }
        var warm: [Double] = []
        for _ in 0..<20 {
            let time = try clock.measure {
                for _ in 0..<(rounds / 20) { try Self.read(provider) }
            }
            warm.append(seconds(time) * 1e6 / Double(rounds / 20))
        }
        print("stored-warm-us", median(warm))
        print("stored-cold-us", median(cold))
    }

    private struct NothingStored: Error {}

    private static func read(_ provider: any CertificateProvider) throws {
        guard try provider.getStoredCertificate() != nil else { throw NothingStored() }
    }
}
