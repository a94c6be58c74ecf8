// swift-tools-version: 6.2

import PackageDescription

// Programs that embed certprov with the default traits, for a look at their objects and symbols.
let package = Package(
    name: "linkage",
    dependencies: [.package(name: "certprov", path: "../..")],
    targets: [
        .executableTarget(
            name: "kit-linkage", dependencies: [.product(name: "CertprovKit", package: "certprov")]),
        .executableTarget(
            name: "signing-linkage", dependencies: [.product(name: "CertprovSigning", package: "certprov")]),
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
