// swift-tools-version: 6.2

import PackageDescription

let package = Package(
    name: "certprov-benchmarks",
    dependencies: [
        .package(name: "certprov", path: ".."),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
    ],
    targets: [
        .executableTarget(
            name: "certprov-bench",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "PKCS11TokenProvider", package: "certprov"),
                .product(name: "PKCS12FileProvider", package: "certprov"),
                .product(name: "PluginHost", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Enrolment", package: "certprov"),
                .product(name: "RemoteMDMProvider", package: "certprov"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ]
        ),
        .executableTarget(
            name: "bench-plugin",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "PKCS11TokenProvider", package: "certprov"),
                .product(name: "PKCS12FileProvider", package: "certprov"),
                .product(name: "PluginKit", package: "certprov"),
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"), .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    ]
}
