import CertprovSigning

/// Signs a report as CMS by the identity of a property file, with the time of a server.
func sign(_ report: [UInt8], configuredBy file: String, anchors: String) async throws -> [UInt8] {
    let identity = try await CertprovLogon(configuredBy: file).manager.identity(NoUserInteraction())
    let server = try TimeStampServer("http://tsa.example.com/", anchors: try CertificateFile.read(anchors))
    let signer = try Signer(identity, timeStamps: server)
    return try await signer.detachedCMS(of: SigningContent(report))
}
