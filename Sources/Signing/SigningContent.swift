package import CertificateProviding
import Crypto
import Glibc
import PDFUpdate

/// Content to sign. It is read once, from the start to the end, in pieces: it need not fit into memory, and may come from a pipe.
public struct SigningContent: Sendable {
    private enum Source: Sendable {
        case bytes([UInt8])
        case descriptor(Int32, name: String)
        case ranges(PDFSource, [Range<Int>])
    }
    private let source: Source

    /// Content in memory.
    public init(_ bytes: [UInt8]) { source = .bytes(bytes) }

    /// Content of a file that the caller has opened, and closes: from the position of the descriptor to the end.
    ///
    /// - Parameter name: The file's name, for messages.
    public init(descriptor: Int32, name: String) { source = .descriptor(descriptor, name: name) }

    /// The signed bytes of a PDF.
    init(_ ranges: [Range<Int>], of document: PDFSource) { source = .ranges(document, ranges) }

    /// The content as a PDF, whose parts are read in any order.
    ///
    /// - Throws: `malformedData` for a pipe.
    func pdfSource() throws(ProviderError) -> PDFSource {
        switch source {
        case .bytes(let bytes): PDFSource(bytes)
        case .descriptor(let descriptor, _): try PDFSource(fileDescriptor: descriptor)
        case .ranges(let document, _): document
        }
    }

    /// The size of a piece, in bytes.
    private static let pieceSize = 1 << 18

    /// Reads the content. Blocks.
    ///
    /// - Parameter take: Gets each piece.
    /// - Throws: `storeReadFailed` for a file that cannot be read, and what `take` throws.
    package func read(
        _ take: (UnsafeRawBufferPointer) throws(ProviderError) -> Void
    ) throws(ProviderError) {
        switch source {
        case .bytes(let bytes):
            // withUnsafeBytes does not pass the type of an error on.
            let result = bytes.withUnsafeBytes { buffer in
                Result { () throws(ProviderError) in try take(buffer) }
            }
            try result.get()
        case .ranges(let document, let ranges):
            for range in ranges {
                for start in stride(from: range.lowerBound, to: range.upperBound, by: Self.pieceSize) {
                    let piece = try document.bytes(start..<min(range.upperBound, start + Self.pieceSize))
                    try SigningContent(piece).read(take)
                }
            }
        case .descriptor(let descriptor, let name):
            let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Self.pieceSize, alignment: 16)
            defer { buffer.deallocate() }
            while true {
                let count = Glibc.read(descriptor, buffer.baseAddress, buffer.count)
                if count < 0, errno == EINTR { continue }
                guard count >= 0 else {
                    throw ProviderError(
                        .storeReadFailed,
                        "\(name.withVisibleControls) cannot be read: \(errorText(errno)).")
                }
                if count == 0 { return }
                try take(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
            }
        }
    }

    /// Reads the content and returns its digest. Blocks.
    ///
    /// - Parameters:
    ///   - copy: Gets each piece too.
    ///   - rest: Bytes that follow the content.
    /// - Throws: As ``read(_:)``.
    package func digest(
        by algorithm: DigestAlgorithm,
        copy: (UnsafeRawBufferPointer) throws(ProviderError) -> Void = { _ in }, rest: [UInt8] = []
    ) throws(ProviderError) -> [UInt8] {
        switch algorithm {
        case .sha256: try digest(SHA256(), copy, rest)
        case .sha384: try digest(SHA384(), copy, rest)
        default: try digest(SHA512(), copy, rest)
        }
    }

    private func digest(
        _ function: some HashFunction, _ copy: (UnsafeRawBufferPointer) throws(ProviderError) -> Void,
        _ rest: [UInt8]
    ) throws(ProviderError) -> [UInt8] {
        var function = function
        try read { piece throws(ProviderError) in
            function.update(bufferPointer: piece)
            try copy(piece)
        }
        function.update(data: rest)
        return Array(function.finalize())
    }

    /// The bytes of content that is in memory.
    var memory: [UInt8]? { if case .bytes(let bytes) = source { bytes } else { nil } }

    /// The most that is read of content that must be in memory, in bytes: for keys that take no digest.
    package static let maximumInMemory = 64 << 20

    /// Reads the content into memory. Blocks.
    ///
    /// - Throws: `unsupportedAlgorithm` for more than ``maximumInMemory``; as ``read(_:)``.
    package func bytes() throws(ProviderError) -> [UInt8] {
        if let memory { return memory }
        var all: [UInt8] = []
        try read { piece throws(ProviderError) in
            guard all.count + piece.count <= Self.maximumInMemory else {
                throw ProviderError(
                    .unsupportedAlgorithm,
                    "The key takes no digest of the content, and so at most \(Self.maximumInMemory >> 20) MiB of it; sign it as CMS, "
                        + "or with a key of another type.")
            }
            all.append(contentsOf: piece)
        }
        return all
    }
}
