import CertificateProviding

extension ProviderStorage {
    func reading<T>(
        _ subject: String, _ body: () throws(SafeDirectory.Refusal) -> T
    ) throws(ProviderError) -> T {
        do throws(SafeDirectory.Refusal) { return try body() } catch {
            throw readFailure(error.reason, of: subject)
        }
    }

    func subject(_ name: String, in parent: String) -> String {
        switch parent {
        case Self.records: "The record \(store.path)/\(parent)/\(provider)/\(name)"
        case Self.parent: "The stored identity"
        default: "The value '\(name.withVisibleControls)'"
        }
    }

    func describe(_ error: any Error, _ name: String, in parent: String) -> ProviderError {
        let isRecord = parent == Self.records
        let file = "\(store.path)/\(parent)/\(provider)/\(name.withVisibleControls)"
        let remedy =
            switch parent {
            // Records of certprov itself cannot be made anew.
            case Self.records where owner == nil: "restore the file from a backup"
            case Self.records: "remove the file; its information is lost"
            case Self.parent: "delete the identity and fetch it again"
            default: "restore the file from a backup, or set the value anew"
            }
        func failure(_ reason: String, isDamage: Bool = true) -> ProviderError {
            var failure = readFailure(reason, of: subject(name, in: parent))
            if isDamage { failure.reason = .damaged }
            return failure
        }
        return switch error {
        // The error of the key's source. Only malformed content calls for a new identity.
        case let error as ProviderError where error.code != .malformedData:
            owner.map(error.attributed) ?? error
        case SealedEnvelope.Failure.otherKey:
            failure("it was sealed with another key; restore that key, or \(remedy)")
        case SealedEnvelope.Failure.newerVersion(let version):
            failure("it was written by a newer certprov (format \(version)); update certprov", isDamage: false)
        case SealedEnvelope.Failure.notSealed, SealedEnvelope.Failure.damaged:
            failure(isRecord ? "it is damaged; \(remedy)" : "the file \(file) is damaged; \(remedy)")
        default:
            failure("its content cannot be read; \(remedy)")
        }
    }

    func readFailure(_ reason: String, of subject: String = "The stored identity") -> ProviderError {
        ProviderError(.storeReadFailed, "\(subject) cannot be read: \(reason).", provider: owner)
    }

    func writeFailure(_ reason: String) -> ProviderError {
        writeFailure(SafeDirectory.Refusal(reason: reason))
    }

    func writeFailure(_ refusal: SafeDirectory.Refusal) -> ProviderError {
        refusal.error(
            .storeWriteFailed, "Nothing was stored, and the previous content is unchanged: \(refusal.reason).",
            provider: owner)
    }
}
