import CertificateProviding
import FoundationEssentials
import Testing

@testable import SplitKeySigning

/// Files with test data that are not in this repository.
enum PublishedVectors {
    /// The directory of the vectors; `nil` where it is not there.
    static let directory: String? = {
        var folder = URL(filePath: #filePath)
        while folder.path != "/" {
            folder = folder.deletingLastPathComponent()
            let path = folder.appending(path: "shared/testdata/dvs").path
            if FileManager.default.fileExists(atPath: path) { return path }
        }
        return nil
    }()

    static let reason: Comment = "the vectors of M-Pin are not there: shared/testdata/dvs beside the checkout"

    static func read<Vector: Decodable>(_ name: String, as type: Vector.Type) throws -> [Vector] {
        let directory = try #require(Self.directory)
        let data = try Data(contentsOf: URL(filePath: "\(directory)/\(name)"))
        return try JSONDecoder().decode([Vector].self, from: data)
    }
}

extension G1Curve {
    /// BN254CX, on which M-Pin's vectors of one pass are: p and r of Barreto and Naehrig's polynomials at
    /// −0x4000000003C012B1, y² = x³ + 2.
    static let bn254cx = G1Curve(
        name: "BN254CX", prime: "2400000008702a0db0bddf647a6366d3243fd6ee18093ee1be6623ef5c1b55b3", a: "0", b: "2",
        generatorX: "2400000008702a0db0bddf647a6366d3243fd6ee18093ee1be6623ef5c1b55b2", generatorY: "1",
        order: "2400000008702a0db0bddf647a6366d2c43fd6ee0cc906cebe11c0a636eb1f6d", cofactor: "1")
}

/// The bytes of hexadecimal digits.
func hex(_ text: String) throws -> [UInt8] { try #require(ByteText.bytes(hexadecimal: text)) }
