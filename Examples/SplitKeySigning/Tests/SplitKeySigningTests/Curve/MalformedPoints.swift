@testable import SplitKeySigning

/// Points of G1 that must be refused wherever one is read.
enum MalformedPoints {
    static func all(of group: G1Group) throws -> [(name: String, bytes: [UInt8])] {
        let good = try group.generator().bytes()
        let prime = try hex(group.curve.prime)
        var offCurve = good
        offCurve[96] ^= 1
        var compressed = Array(good.prefix(49))
        compressed[0] = 2
        return [
            ("empty", []), ("one byte", [4]), ("too short", good.dropLast()), ("too long", good + [0]),
            ("infinity", [0]), ("infinity, padded", [UInt8](repeating: 0, count: 97)),
            ("zero coordinates", [4] + [UInt8](repeating: 0, count: 96)), ("compressed", compressed),
            ("hybrid form", [6 | (good[96] & 1)] + good.dropFirst()), ("off the curve", offCurve),
            ("x is the prime", [4] + prime + good[49...]), ("y is the prime", Array(good[..<49]) + prime),
            ("x is all ones", [4] + [UInt8](repeating: 0xff, count: 48) + good[49...]),
            ("x + p", try hex(KnownPoints.unreduced)), ("outside the subgroup", try hex(KnownPoints.outsideSubgroup)),
        ]
    }
}
