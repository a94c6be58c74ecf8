package import CertificateProviding
import Glibc

/// The bytes of a document, which are read in pieces: memory does not grow with it.
package struct PDFSource: Sendable {
    /// The length in bytes.
    package let count: Int
    private let read: @Sendable (_ range: Range<Int>) throws(ProviderError) -> [UInt8]

    /// A document in a file, which the caller keeps open and unchanged. The position in the file is left alone.
    ///
    /// - Throws: `malformedData` when it is not a regular file. Reads throw it when the file has become shorter.
    package init(fileDescriptor: Int32) throws(ProviderError) {
        var status = stat()
        guard fstat(fileDescriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
            throw ProviderError(.malformedData, "The PDF is not a regular file. Copy it into one.")
        }
        count = Int(status.st_size)
        read = { (range) throws(ProviderError) in
            var bytes = [UInt8](repeating: 0, count: range.count)
            var filled = 0
            while filled < bytes.count {
                let count = bytes[filled...].withUnsafeMutableBytes {
                    pread(fileDescriptor, $0.baseAddress, $0.count, range.lowerBound + filled)
                }
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else {
                    let reason = count == 0 ? "it has become shorter" : errorText(errno)
                    throw ProviderError(.malformedData, "The PDF cannot be read: \(reason). Try again.")
                }
                filled += count
            }
            return bytes
        }
    }

    /// A document in memory.
    package init(_ bytes: [UInt8]) {
        count = bytes.count
        read = { (range) throws(ProviderError) in Array(bytes[range]) }
    }

    /// The beginning of the document: an earlier revision.
    func prefix(_ count: Int) -> PDFSource { PDFSource(count: min(count, self.count), read: read) }

    /// The document with bytes behind it.
    package func appending(_ bytes: [UInt8]) -> PDFSource {
        PDFSource(count: count + bytes.count) { [count, read] (range) throws(ProviderError) in
            try (range.lowerBound < count ? read(range.clamped(to: 0..<count)) : [])
                + bytes[max(0, range.lowerBound - count)..<max(0, range.upperBound - count)]
        }
    }

    private init(
        count: Int, read: @escaping @Sendable (_ range: Range<Int>) throws(ProviderError) -> [UInt8]
    ) { (self.count, self.read) = (count, read) }

    /// The bytes of a range, which is cut at the end of the document.
    package func bytes(_ range: Range<Int>) throws(ProviderError) -> [UInt8] {
        try read(range.clamped(to: 0..<count))
    }
}
