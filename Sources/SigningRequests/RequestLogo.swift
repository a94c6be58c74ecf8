public import CertificateProviding

/// The logo of a service, for the person who is asked: PNG, JPEG, GIF or WebP, of at most 512,000 bytes.
public struct RequestLogo: Sendable, Hashable {
    /// The image.
    package let bytes: [UInt8]
    package let kind: Kind

    /// The most bytes of an image.
    package static let maximumSize = 512_000

    /// One grey pixel.
    public static let blank = RequestLogo(
        kind: .png,
        bytes: [
            0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a,
            // IHDR: 1 by 1, grey of 8 bits.
            0, 0, 0, 13, 0x49, 0x48, 0x44, 0x52, 0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0x3a, 0x7e, 0x9b, 0x55,
            // IDAT.
            0, 0, 0, 10, 0x49, 0x44, 0x41, 0x54, 0x78, 0xda, 0x63, 0x68, 0, 0, 0, 0x82, 0, 0x81, 0xda, 0x45, 0x08, 0x3b,
            // IEND.
            0, 0, 0, 0, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
        ])

    /// A kind of image, by the subtype of its media type.
    package enum Kind: String, CaseIterable, Sendable {
        case png, jpeg, gif, webp

        /// Whether an image begins as this kind does.
        package func fits(_ image: some Collection<UInt8>) -> Bool {
            switch self {
            case .png: image.starts(with: [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a])
            case .jpeg: image.starts(with: [0xff, 0xd8, 0xff])
            case .gif: image.starts(with: "GIF87a".utf8) || image.starts(with: "GIF89a".utf8)
            case .webp: image.starts(with: "RIFF".utf8) && image.dropFirst(8).starts(with: "WEBP".utf8)
            }
        }
    }

    /// Checks nothing.
    package init(kind: Kind, bytes: [UInt8]) { (self.kind, self.bytes) = (kind, bytes) }

    /// Takes an image, whose kind is seen from its first bytes.
    ///
    /// - Throws: `usage` with the reason `wrong-logo-format` or `wrong-logo-size`: the codes that a signer would refuse it with.
    public init(_ image: [UInt8]) throws(ProviderError) {
        guard let kind = Kind.allCases.first(where: { $0.fits(image) }) else {
            throw ResponseCode.wrongLogoFormat.mistake()
        }
        guard image.count <= Self.maximumSize else { throw ResponseCode.wrongLogoSize.mistake() }
        self.init(kind: kind, bytes: image)
    }

    /// The value of `service-logo`.
    var url: String { "data:image/\(kind.rawValue);base64,\(bytes.base64)" }
}
