import Crypto
import Foundation

/// The secrets of back offices (`j_token`). Only their hashes stay in memory.
struct Seeds: Sendable {
    static let minimumLength = 16

    private let hashes: Set<Data>

    init(_ seeds: some Sequence<String>) { hashes = Set(seeds.map(Self.hash)) }

    /// - Parameter file: One secret in each line; empty lines and those that begin with `#` are none.
    init(file: String) throws {
        let kind = "a secret of \(Self.minimumLength) ASCII characters at least, such as openssl rand -hex 16 prints"
        self.init(
            try ConfigurationError.lines(ofFile: file, option: "--seeds", of: kind) { seed in
                let isSecret = seed.utf8.count >= Self.minimumLength && seed.utf8.allSatisfy { (32..<127).contains($0) }
                return isSecret ? nil : "is too short for a secret, or not ASCII. Write \(kind)."
            })
    }

    /// Compares hashes: how long it takes tells nothing of the secrets.
    func contains(_ seed: String) -> Bool { hashes.contains(Self.hash(seed)) }

    private static func hash(_ seed: String) -> Data { Data(SHA256.hash(data: Data(seed.utf8))) }
}
