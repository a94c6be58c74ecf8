/// SplitMix64: the same numbers in every run.
public struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64
    public init(seed: UInt64) { state = seed }

    public mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }
}

/// Damages binary data as files are damaged, and as an attacker would who knows DER.
public struct Mutator {
    public var generator: SeededGenerator
    private let seeds: [[UInt8]]

    /// - Parameter seeds: What mutations begin with, and take pieces from.
    public init(seeds: [[UInt8]], seed: UInt64) {
        self.seeds = seeds
        self.generator = SeededGenerator(seed: seed)
    }

    /// Returns one of the seeds with one to four changes.
    public mutating func next() -> [UInt8] {
        var bytes = seeds.randomElement(using: &generator) ?? []
        for _ in 0..<Int.random(in: 1...4, using: &generator) { change(&bytes) }
        return bytes
    }

    private static let interesting: [UInt8] = [0x00, 0x01, 0x02, 0x30, 0x7f, 0x80, 0x81, 0x82, 0x84, 0x88, 0xa0, 0xff]

    private mutating func change(_ bytes: inout [UInt8]) {
        let place = Int.random(in: 0...bytes.count, using: &generator)
        let end = min(bytes.count, place + Int.random(in: 0...24, using: &generator))
        switch Int.random(in: 0..<8, using: &generator) {
        case 0 where place < bytes.count:
            bytes[place] ^= 1 << UInt8.random(in: 0..<8, using: &generator)
        case 1 where place < bytes.count:
            bytes[place] = Self.interesting.randomElement(using: &generator) ?? 0
        case 2 where place < bytes.count:
            bytes[place] = .random(in: .min ... .max, using: &generator)
        case 3:
            bytes.removeSubrange(place..<end)
        case 4:
            bytes.insert(contentsOf: Array(bytes[place..<end]), at: place)
        case 5:
            let other = seeds.randomElement(using: &generator) ?? []
            let start = Int.random(in: 0...other.count, using: &generator)
            let piece = other[start..<min(other.count, start + Int.random(in: 0...64, using: &generator))]
            bytes.replaceSubrange(place..<end, with: piece)
        case 6:
            changeLength(&bytes, from: place)
        default:
            // Rarely: most shortened files never get past the outermost length.
            if Int.random(in: 0..<4, using: &generator) == 0 { bytes = Array(bytes.prefix(place)) }
        }
    }

    /// Changes the length of the first element at or after `start` that looks like one of DER.
    private func indexOfTag(_ bytes: [UInt8], from start: Int) -> Int? {
        let tags: [UInt8] = [0x02, 0x03, 0x04, 0x06, 0x0c, 0x1e, 0x24, 0x30, 0x31, 0x80, 0xa0, 0xa3]
        return bytes.indices.first { $0 >= start && tags.contains(bytes[$0]) && $0 + 1 < bytes.count }
    }

    private mutating func changeLength(_ bytes: inout [UInt8], from start: Int) {
        guard let tag = indexOfTag(bytes, from: start) else { return }
        let length = tag + 1
        switch Int.random(in: 0..<6, using: &generator) {
        case 0: bytes[length] &+= 1
        case 1: bytes[length] &-= 1
        case 2: bytes[length] = 0
        case 3: bytes[length] = 0x80
        case 4: bytes.replaceSubrange(length...length, with: [0x84, 0xff, 0xff, 0xff, 0xff])
        default: bytes.replaceSubrange(length...length, with: [0x88] + [UInt8](repeating: 0x7f, count: 8))
        }
    }
}
