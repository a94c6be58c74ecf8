public import CertificateProviding

/// The error that `body` throws; `nil` when it throws none.
public func failure<T>(_ body: () async throws -> T) async -> ProviderError? {
    do { _ = try await body() } catch { return certain(error) }
    return nil
}

/// As above, for what does not suspend.
public func failure<T>(_ body: () throws -> T) -> ProviderError? {
    do { _ = try body() } catch { return certain(error) }
    return nil
}

/// The code of the error that `body` throws; `nil` when it throws none.
public func code<T>(_ body: () async throws -> T) async -> ProviderError.Code? { await failure(body)?.code }

private func certain(_ error: any Error) -> ProviderError {
    error as? ProviderError ?? ProviderError(.internal, "\(error)")
}
