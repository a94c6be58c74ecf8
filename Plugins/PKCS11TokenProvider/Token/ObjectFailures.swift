import CP11Kit
import CertificateProviding

/// Failures of single objects on a token: the first ones, and a count of the rest.
struct ObjectFailures {
    static let maximum = 16

    private var named: [ProviderError] = []
    private var count = 0

    mutating func append(_ failure: ProviderError) {
        count += 1
        if named.count < Self.maximum { named.append(failure) }
    }

    mutating func append<T>(_ reading: TokenReader.Reading<T>, on slot: Slot) {
        let known = reading.errors.map { error in
            guard error.code == CKR_OBJECT_HANDLE_INVALID else {
                return ProviderError(error, token: slot.displayName)
            }
            return ProviderError(
                .unavailable,
                "An object on the token '\(slot.displayName)' was deleted while it was read, or hidden by a logout; "
                    + "try again (\(error)).", nativeCode: Int(clamping: error.code), underlying: error)
        }
        known.forEach { append($0) }
        count += reading.unreadable - known.count
    }

    func errors(on slot: Slot) -> [ProviderError] {
        guard count > named.count, let last = named.last else { return named }
        let rest = "The token '\(slot.displayName)' has \(count - named.count) more objects that cannot be used."
        return named + [ProviderError(last.code, rest)]
    }
}
