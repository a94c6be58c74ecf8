import CertificateProviding

extension ProviderStorage {
    func reading<T>(
        _ body: () throws(SafeDirectory.Refusal) -> T
    ) throws(CertificateProviderError) -> T {
        do throws(SafeDirectory.Refusal) { return try body() } catch {
            throw readFailure(error.reason)
        }
    }

    func describe(_ error: any Error, _ name: String, in parent: String) -> CertificateProviderError {
        switch error {
        // What the source of the key says. Only a content that is no identity calls for another one.
        case let error as CertificateProviderError where error.code != .malformedData:
            error.attributed(to: provider)
        case SealedEnvelope.Failure.otherKey:
            readFailure("it was sealed with another key; restore that key, or \(remedy(name, in: parent))")
        case SealedEnvelope.Failure.newerVersion(let version):
            readFailure("it was written by a newer certprov (format \(version)); update certprov")
        case SealedEnvelope.Failure.notSealed, SealedEnvelope.Failure.damaged:
            readFailure("the file \(file(name, in: parent)) is damaged; \(remedy(name, in: parent))")
        default:
            readFailure("its content cannot be read; \(remedy(name, in: parent))")
        }
    }

    private func file(_ name: String, in parent: String) -> String { "\(store.path)/\(parent)/\(provider)/\(name)" }

    private func remedy(_ name: String, in parent: String) -> String {
        parent == Self.records
            ? "remove \(file(name, in: parent)); its information is lost" : "delete the identity and fetch it again"
    }

    func readFailure(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed, "The stored identity cannot be read: \(reason).", provider: provider)
    }

    func writeFailure(_ reason: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeWriteFailed, "Nothing was stored, and the previous content is unchanged: \(reason).",
            provider: provider)
    }
}
