public import CertificateProviding
public import LogonCore

extension LogonConfiguration {
    /// Reads a property file or property list. Blocks on the file system, for at most 1 MiB; no network.
    ///
    /// - Parameter registry: The installed providers. A file that names any other, or a parameter that a provider does
    ///   not document, is refused whatever the policy is.
    /// - Throws: `configurationMissing` when there is no such file; `configurationInvalid`, with the file, and the line
    ///   and key where there is one, for everything else. Messages never show a value.
    public static func load(
        path: String, registry: ProviderRegistry
    ) throws(CertificateProviderError) -> LogonConfiguration {
        try load(path: path, registry: registry, propertyLists: .swiftConfiguration)
    }
}

extension PropertyListFormat {
    /// Property lists as swift-configuration reads them.
    package static let swiftConfiguration = PropertyListFormat { bytes, file throws(CertificateProviderError) in
        try PropertyListReader.settings(in: bytes, file: file)
    }
}
