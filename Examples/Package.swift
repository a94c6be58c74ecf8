// swift-tools-version: 6.2

import PackageDescription

let package = Package(
    name: "certprov-examples",
    dependencies: [
        .package(name: "certprov", path: ".."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    ],
    targets: [
        .target(
            name: "ServiceIdentity",
            dependencies: [
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "MutualTLSService/Sources/ServiceIdentity"
        ),
        .executableTarget(
            name: "example-server",
            dependencies: [
                "ServiceIdentity",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "MutualTLSService/Sources/example-server"
        ),
        .executableTarget(
            name: "example-client",
            dependencies: [
                "ServiceIdentity",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            path: "MutualTLSService/Sources/example-client"
        ),
        .executableTarget(
            name: "sign-document",
            dependencies: [
                .product(name: "CertprovSigning", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
            ],
            path: "DocumentSigning/Sources/sign-document"
        ),
        // A provider of its own: what it imports of certprov is public.
        .target(
            name: "VaultProvider",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "Enrolment", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
            ],
            path: "VaultProvider/Sources/VaultProvider"
        ),
        .executableTarget(
            name: "vault-fetch",
            dependencies: [
                "VaultProvider",
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "VaultProvider/Sources/vault-fetch"
        ),
        // A plugin with a key store.
        .target(
            name: "SSHAgentKeyStore",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
            ],
            path: "Plugins/ssh-agent/Sources/SSHAgentKeyStore"
        ),
        .executableTarget(
            name: "certprov-plugin-ssh-agent",
            dependencies: [
                "SSHAgentKeyStore",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "PluginKit", package: "certprov"),
            ],
            path: "Plugins/ssh-agent/Sources/certprov-plugin-ssh-agent"
        ),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    ]
}
