import CertificateProviding
import ServerTransport

extension ProviderParameters {
    /// Returns the pins that a parameter lists; none where it is not there at all. They are read later.
    ///
    /// - Throws: `configurationInvalid` for an empty one: a pin that got lost, by a variable that is not set for
    ///   example, is never no pin.
    func pins(_ name: String, provider: ProviderID) throws(CertificateProviderError) -> [String] {
        guard let list = self[name]?.text else { return [] }
        let pins = list.split(separator: ",", omittingEmptySubsequences: false).map { String($0).trimmed }
        guard !pins.contains("") else {
            throw invalid(name, "has an empty pin; write the pin there, or remove the parameter", provider: provider)
        }
        return pins
    }

    /// Refuses a parameter that is there and says nothing.
    /// - Throws: `configurationInvalid`.
    func refuseEmpty(_ name: String, provider: ProviderID) throws(CertificateProviderError) {
        guard self[name]?.text.trimmed != "" else {
            throw invalid(name, "is empty; write a value there, or remove the parameter", provider: provider)
        }
    }
}
