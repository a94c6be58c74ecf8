/// Reads certificates from files of other programs.
public enum CertificateFile {
    /// Reads every certificate of a PEM file, or the one of a DER file. Blocks on the file system only.
    ///
    /// - Throws: `fileNotFound`; `configurationInvalid` for a file that cannot be read, and a certificate in OpenSSL's own form;
    ///   `malformedData`, with the line of a damaged block.
    public static func read(_ path: String) throws(ProviderError) -> [X509Certificate] {
        let shown = path.withVisibleControls
        var bytes = try PEMFile.read(path, atMost: PEMFile.maximumSize)
        // It may have a private key.
        defer { bytes.wipe() }
        if bytes.isDER {
            do throws(ProviderError) { return [try X509Certificate(derRepresentation: bytes)] } catch {
                if let other = OtherEncoding(bytes), other != .der { throw other.error(shown) }
                throw ProviderError(
                    .malformedData, "\(shown) is a damaged certificate, or another DER file; replace it.",
                    underlying: error)
            }
        }
        let file = try PEMFile(bytes, named: shown)
        let certificates = try file.certificates()
        if !certificates.isEmpty { return certificates }
        throw ProviderError(.malformedData, "\(shown) contains no certificate\(file.advice)")
    }
}

extension PEMFile {
    /// The end of a sentence that says that no certificate was found.
    fileprivate var advice: String {
        let labels = blocks.map { "'\($0.label.withVisibleControls)' (line \($0.line))" }
        guard !labels.isEmpty else { return "; name a file with one, in PEM or DER." }
        return ", but \(labels.prefix(3).joined(separator: ", ")); name a file with one, in PEM or DER."
    }
}

extension Collection<UInt8> {
    /// Whether this begins as DER does, and is not a text that begins with the digit 0.
    fileprivate var isDER: Bool { starts(with: [0x30]) && dropFirst().first ?? 0 >= 0x80 }
}
