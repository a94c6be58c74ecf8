/// The providers that a program offers. A plain value that is passed in: only the command, or the service that embeds
/// the framework, puts providers into one.
public struct ProviderRegistry: Sendable {
    private var byID: [ProviderID: ProviderDescriptor] = [:]

    /// - Throws: `configurationInvalid` when two descriptors have the same id.
    public init(_ descriptors: [ProviderDescriptor] = []) throws(CertificateProviderError) {
        for descriptor in descriptors { try register(descriptor) }
    }

    /// - Throws: `configurationInvalid` when the id is taken.
    public mutating func register(_ descriptor: ProviderDescriptor) throws(CertificateProviderError) {
        guard byID[descriptor.id] == nil else {
            throw CertificateProviderError(
                .configurationInvalid, "Two providers are called '\(descriptor.id)'; rename one of them.",
                provider: descriptor.id)
        }
        byID[descriptor.id] = descriptor
    }

    public subscript(id: ProviderID) -> ProviderDescriptor? { byID[id] }

    /// In alphabetical order of id.
    public var descriptors: [ProviderDescriptor] { byID.values.sorted { $0.id < $1.id } }
}
