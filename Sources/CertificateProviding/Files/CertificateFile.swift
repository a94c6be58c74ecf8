import SwiftASN1

/// Reads certificates from files of other programs.
public enum CertificateFile {
    /// The maximum size in bytes; no chain comes near it.
    private static let maximumSize = 1 << 20

    /// Reads every certificate of a PEM file, or the one of a DER file. Blocks on the file system only.
    ///
    /// - Throws: `fileNotFound`, or `malformedData` naming the file.
    public static func read(_ path: String) throws(CertificateProviderError) -> [X509Certificate] {
        let shown = path.withVisibleControls
        let bytes: [UInt8]
        do throws(RegularFile.Failure) { bytes = try RegularFile.read(path, atMost: maximumSize) } catch {
            throw CertificateProviderError(
                error.isMissing ? .fileNotFound : .malformedData, "\(shown) cannot be read: \(error).")
        }
        do {
            if bytes.first == 0x30 { return [try X509Certificate(derRepresentation: bytes)] }
            let documents = try PEMDocument.parseMultiple(pemString: String(decoding: bytes, as: UTF8.self))
            let certificates = try documents.filter { $0.discriminator == "CERTIFICATE" }.map {
                try X509Certificate(derRepresentation: $0.derBytes)
            }
            if !certificates.isEmpty { return certificates }
        } catch {
            throw CertificateProviderError(
                .malformedData, "\(shown) contains a damaged certificate, or is neither PEM nor DER; replace it.",
                underlying: error)
        }
        throw CertificateProviderError(
            .malformedData, "\(shown) contains no certificate; name a file with one, in PEM or DER.")
    }
}
