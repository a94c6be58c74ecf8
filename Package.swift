// swift-tools-version: 6.2

import PackageDescription

/// What `certprov plugin new` writes.
let templates = [
    "Package.swift.txt", "Plugin.swift.txt", "Readme.md.txt", "go.mod.txt", "plugin.go", "plugin.py", "plugin.sh",
]

let package = Package(
    name: "certprov",
    products: [
        .library(name: "ACMEProvider", targets: ["ACMEProvider"]),
        .library(name: "CertificateProviding", targets: ["CertificateProviding"]),
        .library(name: "CertificateProviderTesting", targets: ["CertificateProviderTesting"]),
        .library(name: "CertprovKit", targets: ["CertprovKit"]),
        .library(name: "CertprovSigning", targets: ["CertprovSigning"]),
        .library(name: "IdentityStore", targets: ["IdentityStore"]),
        .library(name: "Logon", targets: ["Logon"]),
        .library(name: "LogonSwiftConfiguration", targets: ["LogonSwiftConfiguration"]),
        .library(name: "CertificateTLS", targets: ["CertificateTLS"]),
        .library(name: "Enrolment", targets: ["Enrolment"]),
        .library(name: "NamedKeys", targets: ["NamedKeys"]),
        .library(name: "OAuth", targets: ["OAuth"]),
        .library(name: "PEMFileProvider", targets: ["PEMFileProvider"]),
        .library(name: "PKCS11TokenProvider", targets: ["PKCS11TokenProvider"]),
        .library(name: "PKCS12FileProvider", targets: ["PKCS12FileProvider"]),
        .library(name: "RemoteMDMProvider", targets: ["RemoteMDMProvider"]),
        .library(name: "PluginHost", targets: ["PluginHost"]),
        .library(name: "PluginKit", targets: ["PluginKit"]),
        .library(name: "ProgramRun", targets: ["ProgramRun"]),
        .library(name: "ProviderTransport", targets: ["ProviderTransport"]),
        .library(name: "Renewal", targets: ["Renewal"]),
        .library(name: "SignedData", targets: ["SignedData"]),
        .library(name: "Signing", targets: ["Signing"]),
        .library(name: "SigningRequests", targets: ["SigningRequests"]),
        .library(name: "TPMKeyStore", targets: ["TPMKeyStore"]),
        .library(name: "Terminal", targets: ["Terminal"]),
        .executable(name: "certprov", targets: ["certprov"]),
        .executable(name: "certprov-plugin-launcher", targets: ["certprov-plugin-launcher"]),
        .executable(name: "certprov-plugin-tpm", targets: ["certprov-plugin-tpm"]),
    ],
    traits: [
        .trait(name: "ACME", description: "The provider acme."),
        .trait(name: "MDM", description: "The provider mdm: EST and SCEP, and access tokens by its OAuth settings."),
        .trait(name: "PKCS11", description: "The provider and the key store pkcs11, which need p11-kit."),
        .default(enabledTraits: ["ACME", "MDM", "PKCS11"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/apple/swift-asn1", from: "1.7.4"),
        .package(url: "https://github.com/apple/swift-certificates", from: "1.21.1"),
        .package(
            url: "https://github.com/apple/swift-configuration", from: "1.4.0",
            // For services that reload their file: the manager itself reads property lists without this package.
            traits: ["PropertyList", "Reloading"]),
        .package(url: "https://github.com/apple/swift-crypto", from: "4.5.2"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-extras", from: "1.35.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-system", from: "1.8.1"),
        .package(url: "https://github.com/swift-server/async-http-client", from: "1.37.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
    ],
    targets: [
        .target(
            name: "CertificateProviding",
            dependencies: [
                "CLinux",
                .product(name: "X509", package: "swift-certificates"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SystemPackage", package: "swift-system"),
            ]
        ),
        // Programs that a configuration names: they are run and waited for.
        .target(name: "ProgramRun", dependencies: ["CLinux", "CertificateProviding"]),
        // An identity as files for other programs.
        .target(
            name: "IdentityFiles",
            dependencies: [
                "CertificateProviding", "IdentityStore", "OpenSSLSupport", "ProgramRun",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "SystemPackage", package: "swift-system"),
            ]),
        // Unix sockets of a host, and the processes at their other ends.
        .target(
            name: "HostSockets",
            dependencies: [
                "CLinux", "CertificateProviding",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]),
        .target(
            name: "IdentityStore",
            dependencies: [
                "CLinux", "CertificateProviding", "OpenSSLSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "SystemPackage", package: "swift-system"),
            ]
        ),
        .target(
            name: "Logon",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "IdentityStore", "ProviderTransport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "SystemPackage", package: "swift-system"),
            ]
        ),
        // For services that reload their file.
        .target(
            name: "LogonSwiftConfiguration",
            dependencies: [
                "CertificateProviding", "Logon",
                .product(name: "Configuration", package: "swift-configuration"),
            ]
        ),
        .target(
            name: "Renewal",
            dependencies: [
                "CertificateProviding", "Logon",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        .target(
            name: "CertificateTLS",
            dependencies: [
                "CertificateProviding", "OpenSSLSupport",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "NIOCertificateReloading", package: "swift-nio-extras"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]
        ),
        .systemLibrary(name: "COpenSSL", pkgConfig: "libcrypto", providers: [.apt(["libssl-dev"])]),
        .target(
            name: "OpenSSLSupport",
            dependencies: [
                "COpenSSL", "CertificateProviding", .product(name: "SwiftASN1", package: "swift-asn1"),
            ]
        ),
        .target(
            name: "PKCS12FileProvider",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "OpenSSLSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "SystemPackage", package: "swift-system"),
            ],
            path: "Plugins/PKCS12FileProvider"
        ),
        .target(
            name: "PEMFileProvider",
            dependencies: [
                "CertificateProviding", "OpenSSLSupport",
                .product(name: "Logging", package: "swift-log"),
            ],
            path: "Plugins/PEMFileProvider"
        ),
        .target(name: "CLinux"),
        .target(name: "CArguments"),
        .systemLibrary(name: "CP11Kit", pkgConfig: "p11-kit-1", providers: [.apt(["libp11-kit-dev"])]),
        .target(
            name: "PKCS11TokenProvider",
            dependencies: [
                "CertificateProviding", "CP11Kit",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
            ],
            path: "Plugins/PKCS11TokenProvider"
        ),
        .systemLibrary(name: "CTSS", pkgConfig: "tss2-esys", providers: [.apt(["libtss2-dev"])]),
        .target(
            name: "TPMKeyStore",
            dependencies: [
                "CTSS", "CertificateProviding", "CertificateTLS", "ProviderTransport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
            ],
            path: "Plugins/TPMKeyStore"
        ),
        .target(
            name: "ProviderTransport",
            dependencies: [
                "CertificateProviding", "CertificateTLS",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOExtras", package: "swift-nio-extras"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ]
        ),
        .target(
            name: "OAuth",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "ProviderTransport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
            ]
        ),
        // Key pairs with a name and without a certificate.
        .target(
            name: "NamedKeys",
            dependencies: [
                "CertificateProviding", "OpenSSLSupport", "Signing",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
            ]
        ),
        // The engine of every enrolment.
        .target(
            name: "Enrolment",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "ProviderTransport",
                .product(name: "Logging", package: "swift-log"),
            ]
        ),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),
        // Reads of a PDF what an update with a signature needs, and writes the update. No cryptography.
        .target(name: "PDFUpdate", dependencies: ["CZlib", "CertificateProviding"]),
        .target(name: "SignedData", dependencies: ["CertificateProviding"]),
        .target(
            name: "Signing",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "OpenSSLSupport", "PDFUpdate", "ProviderTransport",
                "SignedData",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
            ]),
        // Requests of other applications for signatures: both sides.
        .target(
            name: "SigningRequests",
            dependencies: [
                "CLinux", "CertificateProviding", "HostSockets", "IdentityStore", "OpenSSLSupport", "PDFUpdate",
                "ProgramRun", "Signing",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        .target(
            name: "RemoteMDMProvider",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "Enrolment", "OAuth", "OpenSSLSupport",
                "ProviderTransport", "SignedData",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            path: "Plugins/RemoteMDMProvider"
        ),
        .target(
            name: "ACMEProvider",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "Enrolment", "IdentityStore", "ProgramRun",
                "ProviderTransport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            path: "Plugins/ACMEProvider"
        ),
        // The conformance kit, for tests of providers by other people too.
        .target(
            name: "CertificateProviderTesting",
            dependencies: [
                "CertificateProviding",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        // What both sides of a plugin's connection have in common.
        .target(name: "PluginProtocol", dependencies: ["CLinux", "CertificateProviding"]),
        .target(
            name: "PluginHost",
            dependencies: [
                "CLinux", "CertificateProviding", "PluginProtocol",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
            ]),
        .target(
            name: "PluginKit",
            dependencies: [
                "CLinux", "CertificateProviding", "PluginProtocol",
                .product(name: "Logging", package: "swift-log"),
            ]),
        // The key store `tpm:` for all programs of a host.
        .executableTarget(
            name: "certprov-plugin-tpm", dependencies: ["CertificateProviding", "PluginKit", "TPMKeyStore"]),
        // What a command has at a terminal: questions, streams, exit statuses.
        .target(
            name: "Terminal",
            dependencies: ["CLinux", "CertificateProviding", .product(name: "Logging", package: "swift-log")]),
        // Starts plugins, and ends them with everything that they have started.
        .executableTarget(name: "certprov-plugin-launcher"),
        // The one composition root. Without the parts for services, which the command does not wait for.
        .target(
            name: "CertprovComposition",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "IdentityFiles", "IdentityStore", "Logon",
                "PEMFileProvider", "PKCS12FileProvider", "PluginHost", "ProviderTransport",
                .target(name: "ACMEProvider", condition: .when(traits: ["ACME"])),
                .target(name: "OAuth", condition: .when(traits: ["MDM"])),
                .target(name: "PKCS11TokenProvider", condition: .when(traits: ["PKCS11"])),
                .target(name: "RemoteMDMProvider", condition: .when(traits: ["MDM"])),
                .product(name: "Logging", package: "swift-log"),
            ]
        ),
        // The short way in for services: all of it in one import.
        .target(
            name: "CertprovKit",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "CertprovComposition", "IdentityFiles", "IdentityStore",
                "Logon", "PluginHost", "ProviderTransport", "Renewal",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        // The same for programs that sign.
        .target(
            name: "CertprovSigning",
            dependencies: [
                "CertificateProviding", "CertprovKit", "NamedKeys", "PDFUpdate", "Signing", "SigningRequests",
            ]),
        // All identities of a host in one service.
        .target(
            name: "HostService",
            dependencies: [
                "CLinux", "CertificateProviding", "CertificateTLS", "CertprovComposition", "CertprovKit", "HostSockets",
                "IdentityFiles", "IdentityStore", "Logon", "PluginHost", "Renewal",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ]
        ),
        .executableTarget(
            name: "certprov",
            dependencies: [
                "CArguments", "CLinux", "CertificateProviderTesting", "CertificateProviding", "CertificateTLS",
                "CertprovComposition", "HostService", "HostSockets", "IdentityFiles", "IdentityStore", "Logon",
                "NamedKeys", "PluginHost", "PluginProtocol", "ProviderTransport", "Signing", "SigningRequests",
                "Terminal", "certprov-plugin-launcher",
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ],
            resources: templates.map { .embedInCode("Templates/\($0)") }
        ),
        .target(
            name: "TestSupport",
            dependencies: [
                "CLinux", "CertificateProviding", "CertificateTLS", "Enrolment", "IdentityStore", "ProviderTransport",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "X509", package: "swift-certificates"),
            ],
            path: "Tests/TestSupport",
            exclude: ["flawed-attestation-server.py"]
        ),
        .testTarget(
            name: "CertificateProvidingTests",
            dependencies: [
                "CertificateProviding", "TestSupport", .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        // Tries passcodes, and is killed.
        .executableTarget(
            name: "VaultGuesser", dependencies: ["CertificateProviding", "IdentityStore"], path: "Tests/VaultGuesser"),
        .testTarget(
            name: "IdentityStoreTests",
            dependencies: [
                "IdentityStore", "TestSupport", "VaultGuesser", .product(name: "Crypto", package: "swift-crypto"),
            ]),
        .testTarget(
            name: "IdentityFilesTests",
            dependencies: [
                "CertificateProviding", "IdentityFiles", "IdentityStore", "OpenSSLSupport", "ProgramRun", "TestSupport",
                .product(name: "X509", package: "swift-certificates"),
            ]),
        .testTarget(
            name: "PKCS11KeyGenerationTests",
            dependencies: [
                "CertificateProviderTesting", "CertificateProviding", "CP11Kit", "IdentityStore", "PKCS11TokenProvider",
                "Enrolment", "PEMFileProvider", "RemoteMDMProvider",
                "TestSupport",
                .product(name: "Logging", package: "swift-log"),
            ], exclude: ["extracting-module.c"]),
        .testTarget(
            name: "PKCS12FileProviderTests",
            dependencies: [
                "IdentityStore", "OpenSSLSupport", "PKCS12FileProvider", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        .testTarget(
            name: "PEMFileProviderTests",
            dependencies: [
                "CertificateProviderTesting", "CertificateProviding", "CertprovKit", "IdentityStore", "Logon",
                "OpenSSLSupport", "PEMFileProvider", "PKCS11TokenProvider", "PKCS12FileProvider", "Renewal",
                "TestSupport",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]),
        .testTarget(
            name: "ACMEProviderTests",
            dependencies: [
                "ACMEProvider", "CertificateProviding", "Enrolment", "IdentityStore", "ProviderTransport",
                "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ], exclude: ["verify-statement.py"]),
        // The functions of the PKCS#11 module that fails as it is told to. The tests compile and load the module itself.
        .systemLibrary(
            name: "FaultyModuleControl", path: "Tests/FaultyModule/include", pkgConfig: "p11-kit-1"),
        .testTarget(
            name: "PKCS11FaultTests",
            dependencies: [
                "CertificateTLS", "FaultyModuleControl", "IdentityStore", "PKCS11TokenProvider", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ]),
        // What its tests stop by a signal.
        .executableTarget(
            name: "SigningService",
            dependencies: [
                "CertificateProviding", "CertprovKit", "IdentityStore", "PKCS11TokenProvider", "TestSupport",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Tests/SigningService"),
        .testTarget(
            name: "PKCS11CardTests",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "PKCS11TokenProvider", "SigningService", "TestSupport",
                "certprov",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ]),
        .testTarget(
            name: "PKCS11TokenProviderTests",
            dependencies: [
                "CP11Kit", "CertificateTLS", "IdentityStore", "PKCS11TokenProvider", "SigningService", "TestSupport",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ]),
        .testTarget(
            name: "RemoteMDMProviderTests",
            dependencies: [
                "COpenSSL", "CertificateProviding", "CertificateTLS", "IdentityStore", "OAuth",
                "OpenSSLSupport",
                "Enrolment", "RemoteMDMProvider", "ProviderTransport", "Renewal", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "CryptoExtras", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        .testTarget(
            name: "SigningTests",
            dependencies: ["CertificateProviding", "ProviderTransport", "SignedData", "Signing", "TestSupport"],
            exclude: ["ca.py", "tsa.py", "validate-lt.py"]),
        .testTarget(
            name: "HostSocketsTests",
            dependencies: [
                "CertificateProviding", "HostSockets", "TestSupport",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ], exclude: ["caller.py"]),
        .testTarget(
            name: "HostServiceTests",
            dependencies: [
                "CertificateProviding", "CertificateTLS", "CertprovComposition", "HostService", "HostSockets",
                "IdentityStore", "Logon", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ], exclude: ["tunnel.py"]),
        // Has requests that wait, and is killed.
        .executableTarget(
            name: "RequestWaiter", dependencies: ["CertificateProviding", "IdentityStore", "SigningRequests"],
            path: "Tests/RequestWaiter"),
        .testTarget(
            name: "SigningRequestsTests",
            dependencies: [
                "CertificateProviding", "HostSockets", "IdentityStore", "OpenSSLSupport", "RequestWaiter", "Signing",
                "SigningRequests", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        .testTarget(
            name: "EnrolmentTests",
            dependencies: [
                "CertificateProviding", "Enrolment", "IdentityStore", "ProviderTransport", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]),
        // Real servers, by the command that is built beside it.
        .testTarget(
            name: "ACMEServerTests",
            dependencies: [
                "ACMEProvider", "CertificateProviding", "PluginHost", "TestPlugin", "TestSupport", "certprov",
            ]),
        .testTarget(
            name: "NamedKeysTests",
            dependencies: [
                "CertificateProviding", "IdentityStore", "NamedKeys", "Signing", "TestSupport",
                .product(name: "Crypto", package: "swift-crypto"),
                .product(name: "Logging", package: "swift-log"),
            ]),
        .testTarget(
            name: "PDFUpdateTests",
            dependencies: [
                "CertificateProviding", "PDFUpdate", "Signing", "TestSupport", "certprov",
                .product(name: "Crypto", package: "swift-crypto"),
            ], exclude: ["validate.py"]),
        .testTarget(
            name: "OAuthTests", dependencies: ["CertificateProviding", "CertificateTLS", "OAuth", "TestSupport"]),
        .testTarget(
            name: "ReadmeTests",
            dependencies: [
                "ACMEProvider", "CertificateProviderTesting", "CertificateProviding", "CertificateTLS",
                "CertprovComposition", "CertprovKit", "CertprovSigning", "HostService", "IdentityStore",
                "Logon", "OAuth", "PKCS11TokenProvider",
                "PEMFileProvider", "PKCS12FileProvider", "PluginHost", "PluginKit", "RemoteMDMProvider",
                "ProviderTransport", "Renewal", "SigningRequests", "Terminal", "TestSupport", "certprov",
                "certprov-plugin-launcher",
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ]
        ),
        .testTarget(
            name: "LogonTests",
            dependencies: [
                "CertificateTLS", "IdentityStore", "Logon", "LogonSwiftConfiguration", "ProviderTransport",
                "TestSupport",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "Configuration", package: "swift-configuration"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "SystemPackage", package: "swift-system"),
            ]
        ),
        // What `make simulation` runs, and the tests look at.
        .executableTarget(
            name: "RenewalSimulation", dependencies: ["CertificateProviding", "Renewal"],
            path: "Tests/RenewalSimulation"),
        .testTarget(
            name: "RenewalTests",
            dependencies: [
                "CertificateProviding", "Logon", "Renewal", "RenewalSimulation", "TestSupport",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "ServiceLifecycleTestKit", package: "swift-service-lifecycle"),
            ]
        ),
        .testTarget(
            name: "CertprovKitTests",
            dependencies: [
                "CertprovKit", "IdentityFiles", "ProviderTransport", "TestSupport",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "X509", package: "swift-certificates"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        .testTarget(
            name: "CertificateTLSTests",
            dependencies: [
                "CertificateTLS", "SigningRequests", "TestSupport",
                .product(name: "CoreMetrics", package: "swift-metrics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOCertificateReloading", package: "swift-nio-extras"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOHTTP1", package: "swift-nio"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "AsyncHTTPClient", package: "async-http-client"),
                .product(name: "SwiftASN1", package: "swift-asn1"),
                .product(name: "X509", package: "swift-certificates"),
            ]
        ),
        // On software TPMs.
        .testTarget(
            name: "TPMKeyStoreTests",
            dependencies: [
                "ACMEProvider", "CertificateProviderTesting", "CertificateProviding", "PEMFileProvider", "PluginHost",
                "TPMKeyStore", "TestSupport", "certprov-plugin-tpm",
                .product(name: "Logging", package: "swift-log"),
            ], exclude: ["faulty-tpm.py"]),
        // Plugins of a built-in provider, which the documentation shows, and of a key store.
        .executableTarget(
            name: "ExamplePlugin", dependencies: ["PKCS12FileProvider", "PluginKit"], path: "Tests/ExamplePlugin"),
        .executableTarget(
            name: "TestPlugin",
            dependencies: [
                "ACMEProvider", "CertificateProviding", "IdentityStore", "PKCS11TokenProvider", "PluginKit",
                "RemoteMDMProvider", "TestSupport", .product(name: "Logging", package: "swift-log"),
            ], path: "Tests/TestPlugin"),
        .testTarget(
            name: "PluginHostTests",
            dependencies: [
                "CertificateProviderTesting", "CertificateProviding", "CertificateTLS", "ExamplePlugin",
                "IdentityStore",
                "PKCS12FileProvider", "PluginHost", "PluginKit", "PluginProtocol", "Renewal", "TestPlugin",
                "TestSupport",
                "certprov-plugin-launcher",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
            ], exclude: ["transcript.py", "zoo.py"]),
        // The service of the page Embedding, which `make demo` shows. Tests/ServiceByThePage builds it as its users do.
        .executableTarget(
            name: "Greeter",
            dependencies: [
                "CertprovKit",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "UnixSignals", package: "swift-service-lifecycle"),
            ], path: "Tests/Greeter"),
        // Runs the command that is built beside it.
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "CertificateProviding", "Enrolment", "Greeter", "IdentityStore", "PKCS11TokenProvider", "PluginHost",
                "RemoteMDMProvider", "RequestWaiter",
                "SigningRequests", "SigningService", "TestPlugin", "TestSupport", "certprov", "certprov-plugin-tpm",
            ], exclude: ["attesting-plugin.py", "optimized.txt", "validate-cms.py"]),
    ],
    swiftLanguageModes: [.v6]
)

for target in package.targets where target.type != .system {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            .enableUpcomingFeature("ExistentialAny"),
            .enableUpcomingFeature("MemberImportVisibility"),
            .enableUpcomingFeature("InternalImportsByDefault"),
            .enableUpcomingFeature("NonisolatedNonsendingByDefault"),
        ]
}
