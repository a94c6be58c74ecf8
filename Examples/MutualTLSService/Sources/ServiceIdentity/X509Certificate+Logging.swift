public import CertprovKit
import FoundationEssentials
public import Logging

extension X509Certificate {
    /// The serial number in hexadecimal digits, as `openssl x509 -serial` prints it.
    public var serial: String {
        let digits = serialNumber.map { byte in
            let hex = String(byte, radix: 16, uppercase: true)
            return byte < 16 ? "0" + hex : hex
        }
        // DER puts a zero byte before a number whose first bit is set.
        return (digits.count > 1 && digits[0] == "00" ? digits.dropFirst() : digits[...]).joined()
    }

    /// One line for people.
    public var summary: String { "\(subject), serial \(serial), until \(notValidAfter.formatted(.iso8601))" }

    public var logMetadata: Logger.Metadata {
        ["subject": "\(subject)", "serial": "\(serial)", "expires": "\(notValidAfter.formatted(.iso8601))"]
    }
}
