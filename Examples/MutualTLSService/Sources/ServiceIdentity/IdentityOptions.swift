public import ArgumentParser
public import CertprovKit

/// What every program of this package is told about its identity and its peers.
public struct IdentityOptions: ParsableArguments {
    @Option(help: "The property file that says where the identity comes from.")
    public var config: String

    @Option(name: .customLong("trust-anchors"), help: "A PEM file with the authorities that certify the peers.")
    public var trustAnchorsFile: String

    public var trustAnchors: TrustAnchors { .pemFile(trustAnchorsFile) }

    public init() {}
}
