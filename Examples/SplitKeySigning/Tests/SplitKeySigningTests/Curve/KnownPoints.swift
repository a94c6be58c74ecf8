/// Points of BLS12-381, computed with affine arithmetic on whole numbers.
enum KnownPoints {
    /// Map of `alice@example.com`.
    static let alice =
        "040dc9af96b13f8ac02ce3d96cfe79b7e220f8ddbf004bf3f1cda5255e77723118fc6fa5173c2fbbfa40bc5c03bb5a87740e"
        + "a3c6f0793e62ab4bb417f24c306ab3041c6359f5faf4cb9d75792562fed50c7da937127af3f4a3a01138720d905788"
    /// The same with the prime added to x.
    static let unreduced =
        "0427cac180eabf715a77ff812341c564b985702943f3d106b134d5f7ff6e23273d1b1ba515ed83bbf9fabb5c03bb5a321f0e"
        + "a3c6f0793e62ab4bb417f24c306ab3041c6359f5faf4cb9d75792562fed50c7da937127af3f4a3a01138720d905788"
    /// A point of the curve whose order is another one.
    static let outsideSubgroup =
        "040000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000040a"
        + "989badd40d6212b33cffc3f3763e9bc760f988c9926b26da9dd85e928483446346b8ed00e1de5d5ea93e354abe706c"
}
