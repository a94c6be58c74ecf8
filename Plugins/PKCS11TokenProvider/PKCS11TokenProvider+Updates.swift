package import CertificateProviding

extension PKCS11TokenProvider: UpdateAnnouncing {
    /// The provider itself.
    package var updates: (any UpdateAnnouncing)? { self }

    /// Looks at the token once a minute, and announces that another certificate would be chosen there than that of the
    /// identity that was handed out last: another program has written one to the token, perhaps with a new key. Announces one
    /// that is not taken once, until another look shows another one.
    ///
    /// A look does not sign, and makes no login but one that the removal of the token has ended. It sees nothing of a token
    /// that is away or wants its login first, nor what a module does not show before it starts again: see
    /// ``getCertificate(_:)``.
    package func announcements() -> AsyncStream<Void> { announcements(every: .seconds(60)) }

    func announcements(every interval: Duration) -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        // It keeps no provider that has no other use.
        let looks = Task { [weak self] in
            var lastSeen: X509Certificate?
            while (try? await Task.sleep(for: interval)) != nil {
                guard let hasNews = await self?.hasNews(since: &lastSeen) else { break }
                if hasNews { continuation.yield() }
            }
            continuation.finish()
        }
        keep(continuation) { looks.cancel() }
        return stream
    }

    /// - Returns: `nil` after ``shutdown()``.
    private func hasNews(since lastSeen: inout X509Certificate?) async -> Bool? {
        guard let current else { return false }
        do throws(ProviderError) {
            let tokens = try self.tokens()
            let inSight = try await tokens.calls.run("looking for a newer certificate") {
                () throws(ProviderError) in try tokens.certificateInSight()
            }
            guard let inSight else { return false }
            defer { lastSeen = inSight }
            return ![current, lastSeen].contains(inSight)
        } catch {
            return isShutDown ? nil : false
        }
    }
}

extension TokenLocator {
    /// The certificate of the identity that would be chosen now; `nil` where that takes a login.
    fileprivate func certificateInSight() throws(ProviderError) -> X509Certificate? {
        var failures: [ProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty, try loginToUse(present, lettingSign: false) == nil else { return nil }
        let candidates = present.flatMap { read($0.0, $0.1, &failures) }
        return try choose(candidates, failures).candidate.certificate
    }
}
