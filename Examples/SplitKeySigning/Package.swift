// swift-tools-version: 6.2

import PackageDescription

// A package of its own, as an application by other people: it uses public products only.
let package = Package(
    name: "split-key-signing",
    products: [
        .library(name: "SplitKeySigning", targets: ["SplitKeySigning"]),
        .executable(name: "dvs", targets: ["DVSCommand"]),
        .executable(name: "relying-party", targets: ["RelyingParty"]),
    ],
    dependencies: [
        .package(name: "certprov", path: "../.."),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-http-types", from: "1.8.0", traits: []),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/hummingbird-project/hummingbird", from: "2.28.1", traits: []),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        .package(url: "https://github.com/swiftlang/swift-subprocess", from: "1.0.2"),
        .package(url: "https://github.com/vapor/jwt-kit", from: "5.7.1"),
    ],
    targets: [
        // Curves with parameters of one's own, which no Swift package has.
        .systemLibrary(
            name: "COpenSSLCurves", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .target(
            name: "SplitKeySigning",
            dependencies: [
                "COpenSSLCurves",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "Subprocess", package: "swift-subprocess"),
            ]
        ),
        .executableTarget(
            name: "DVSCommand",
            dependencies: [
                "SplitKeySigning",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Terminal", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
            ]
        ),
        .executableTarget(
            name: "RelyingParty",
            dependencies: [
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "Logon", package: "certprov"),
                .product(name: "OAuth", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Terminal", package: "certprov"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "JWTKit", package: "jwt-kit"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTPTypes", package: "swift-nio-extras"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ]
        ),
        // Signs with a PIN, for a count of instructions.
        .executableTarget(
            name: "SignatureInstructions",
            dependencies: ["SplitKeySigning", .product(name: "CertificateProviding", package: "certprov")],
            path: "Tests/SignatureInstructions"
        ),
        .testTarget(
            name: "SplitKeySigningTests",
            dependencies: [
                "DVSCommand", "SplitKeySigning", "COpenSSLCurves",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "CertprovKit", package: "certprov"),
                .product(name: "IdentityStore", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "Subprocess", package: "swift-subprocess"),
            ],
            exclude: ["EndToEnd/terminal.py", "EndToEnd/verify.py"]
        ),
        .testTarget(
            name: "RelyingPartyTests",
            dependencies: [
                "RelyingParty",
                .product(name: "CertificateProviding", package: "certprov"),
                .product(name: "CertificateTLS", package: "certprov"),
                .product(name: "ProviderTransport", package: "certprov"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "HTTPTypes", package: "swift-http-types"),
                .product(name: "Hummingbird", package: "hummingbird"),
                .product(name: "HummingbirdCore", package: "hummingbird"),
                .product(name: "HummingbirdTLS", package: "hummingbird"),
                .product(name: "HummingbirdTesting", package: "hummingbird"),
                .product(name: "JWTKit", package: "jwt-kit"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            exclude: ["authlib-provider.py", "sign.py"]
        ),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets where target.type != .system {
    target.swiftSettings = [
        .enableUpcomingFeature("ExistentialAny"),
        .enableUpcomingFeature("MemberImportVisibility"),
        .enableUpcomingFeature("InternalImportsByDefault"),
        .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
    ]
}
