public import CertificateProviding
import Glibc

/// The command's two streams: results on stdout, everything else on stderr.
public enum Console {
    /// Writes a result.
    /// - Throws: `storeWriteFailed` when stdout cannot take it, so that a full disk is not mistaken for success.
    public static func print(_ text: String) throws(CertificateProviderError) {
        try write(text, to: STDOUT_FILENO)
    }

    /// Tells the person something. What stderr does not take is lost.
    public static func note(_ text: String) {
        try? write(text + "\n", to: STDERR_FILENO)
    }

    private static func write(_ text: String, to descriptor: Int32) throws(CertificateProviderError) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else {
                throw CertificateProviderError(
                    .storeWriteFailed, "The output cannot be written: \(String(cString: strerror(errno))).")
            }
            bytes = bytes.dropFirst(count)
        }
    }
}
