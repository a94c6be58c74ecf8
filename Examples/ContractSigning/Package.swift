// swift-tools-version: 6.2

import PackageDescription

// A package of its own, as an application by other people: it uses public products only.
let package = Package(
    name: "contract-signing",
    products: [
        .library(name: "Contracts", targets: ["Contracts"]),
        .executable(name: "contracts", targets: ["ContractsCommand"]),
        .executable(name: "contract-server", targets: ["ContractServer"]),
    ],
    dependencies: [
        .package(name: "certprov", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-asn1", from: "1.7.4"),
        .package(url: "https://github.com/apple/swift-certificates", from: "1.21.1"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
        .package(url: "https://github.com/hummingbird-project/swift-mustache", from: "2.1.1"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/swiftlang/swift-subprocess", from: "1.0.2"),
    ],
    targets: [
        .target(
            name: "Contracts",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Signing", package: "certprov"),
                .product(name: "SigningRequests", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "Subprocess", package: "swift-subprocess"),
            ]
        ),
        .executableTarget(
            name: "ContractsCommand",
            dependencies: [
                "Contracts",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "CertprovSigning", package: "certprov"),
                .product(name: "Terminal", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Subprocess", package: "swift-subprocess"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
            ]
        ),
        .executableTarget(
            name: "ContractServer",
            dependencies: [
                "Contracts",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "Signing", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Mustache", package: "swift-mustache"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "Subprocess", package: "swift-subprocess"),
                .product(name: "SystemPackage", package: "swift-system"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
                .product(name: "X509", package: "swift-certificates"),
            ]
        ),
        // Uses the queue as another process, for tests.
        .executableTarget(
            name: "QueueWriter",
            dependencies: [
                "Contracts",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
            ],
            path: "Tests/QueueWriter"
        ),
        .testTarget(
            name: "ContractsTests",
            dependencies: [
                "ContractServer", "Contracts", "ContractsCommand", "QueueWriter",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Signing", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "Subprocess", package: "swift-subprocess"),
            ]
        ),
        .testTarget(
            name: "ContractServerTests",
            dependencies: [
                "ContractServer", "Contracts",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "Signing", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "Subprocess", package: "swift-subprocess"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]
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
