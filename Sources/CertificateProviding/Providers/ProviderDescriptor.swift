/// What is known of an installed provider before one is made: its name, its parameters and how to make it.
public struct ProviderDescriptor: Sendable {
    public var id: ProviderID
    /// For people, such as `PKCS#12 file`.
    public var displayName: String
    /// One sentence.
    public var summary: String
    public var parameters: [ParameterDescriptor]
    /// Makes an instance without parameters; it is then given some. Must not block.
    public var makeProvider: @Sendable (ProviderEnvironment) -> any CertificateProvider

    public init(
        id: ProviderID, displayName: String, summary: String, parameters: [ParameterDescriptor],
        makeProvider: @escaping @Sendable (ProviderEnvironment) -> any CertificateProvider
    ) {
        self.id = id
        self.displayName = displayName
        self.summary = summary
        self.parameters = parameters
        self.makeProvider = makeProvider
    }
}

/// A documented parameter of a provider.
public struct ParameterDescriptor: Sendable {
    public var name: String
    public var kind: Kind
    public var isRequired: Bool
    /// What holds when the parameter is not given, in words; nil when it has no default.
    public var defaultValue: String?
    /// One sentence.
    public var summary: String

    public init(
        _ name: String, _ kind: Kind, isRequired: Bool = false, defaultValue: String? = nil, summary: String
    ) {
        self.name = name
        self.kind = kind
        self.isRequired = isRequired
        self.defaultValue = defaultValue
        self.summary = summary
    }

    /// What a value looks like. Open, since providers by other people have kinds of their own.
    public struct Kind: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
        public let rawValue: String
        public init(rawValue: String) { self.rawValue = rawValue }
        public var description: String { rawValue }

        public static let string = Self(rawValue: "string")
        public static let path = Self(rawValue: "path")
        /// Certificates, which everybody may read.
        public static let certificateFile = Self(rawValue: "certificate-file")
        /// The same, or a token's URI (RFC 7512).
        public static let certificate = Self(rawValue: "certificate")
        /// What ``CertificatePin`` reads, with commas in between.
        public static let pins = Self(rawValue: "pins")
        /// A shared library, which everybody may read.
        public static let library = Self(rawValue: "library")
        public static let boolean = Self(rawValue: "boolean")
        public static let secretSource = Self(rawValue: "secret-source")
        /// The URL of a server, with the scheme https or http.
        public static let serverURL = Self(rawValue: "server-url")
        /// The URL of an HTTP proxy on the way to the servers, or a word that means none.
        public static let proxyURL = Self(rawValue: "proxy-url")
    }
}
