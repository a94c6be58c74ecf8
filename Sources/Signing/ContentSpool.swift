package import CertificateProviding
import Glibc
import PDFUpdate

/// A temporary file without a name that holds content until its signature is there: the size of the content is written before it.
package final class ContentSpool: Sendable {
    private let descriptor: Int32
    private let directory: String

    /// Creates the file. No other process can open it.
    ///
    /// - Parameter directory: On the file system that has room for the content.
    /// - Throws: `storeWriteFailed`.
    package init(in directory: String) throws(ProviderError) {
        self.directory = directory
        descriptor = open(directory, O_RDWR | O_CLOEXEC | Self.temporary, 0o600)
        guard descriptor >= 0 else { throw Self.failure(directory) }
    }

    /// O_TMPFILE, which Swift does not import.
    private static let temporary: Int32 = 0o20_000_000 | O_DIRECTORY

    deinit { close(descriptor) }

    /// The number of bytes.
    package var count: Int { lseek(descriptor, 0, SEEK_END) }

    /// Adds bytes. Blocks.
    ///
    /// - Throws: `storeWriteFailed`.
    package func append(_ piece: UnsafeRawBufferPointer) throws(ProviderError) {
        var rest = piece
        while !rest.isEmpty {
            let count = write(descriptor, rest.baseAddress, rest.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw Self.failure(directory) }
            rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
        }
    }

    /// The content from its start. Valid as long as the spool.
    package func content() -> SigningContent {
        lseek(descriptor, 0, SEEK_SET)
        return SigningContent(descriptor: descriptor, name: "the temporary file in \(directory)")
    }

    /// The content as a document. Valid as long as the spool.
    ///
    /// - Throws: `malformedData`.
    func pdfSource() throws(ProviderError) -> PDFSource { try PDFSource(fileDescriptor: descriptor) }

    private static func failure(_ directory: String) -> ProviderError {
        ProviderError(
            .storeWriteFailed,
            "A temporary file in \(directory.withVisibleControls) cannot be written: \(errorText(errno))."
        )
    }
}
