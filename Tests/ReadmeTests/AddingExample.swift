import CertprovKit

/// Returns a kit whose property file may name a provider of the program.
func makeLogon(configuredBy file: String) throws -> CertprovLogon {
    try CertprovLogon(configuredBy: file, adding: [SplitProvider.descriptor])
}
