import CertificateProviding

/// Predicts the result of ``obtain(from:_:_:)`` without asking a provider for an identity.
extension ProviderSequence {
    /// Returns the provider that the identity would come from: the first one that would choose an identity, would have
    /// to ask the user, or cannot tell. If there is none, the first one that finds no identity: it may still be able to
    /// obtain one.
    func forecast(of providers: [any CertificateProvider], _ log: inout DecisionLog) async -> ProviderID? {
        var empty: ProviderID?
        for (index, provider) in providers.enumerated() {
            let rest = providers[(index + 1)...]
            let start = uptime()
            guard let lister = provider.listing else {
                log.append(provider.id, .get, .wouldBeAsked, reason: "it cannot list its identities")
                log.appendNotAsked(rest, .list, because: "'\(provider.id)' was chosen before")
                return provider.id
            }
            switch await lister.listIdentities().prospect {
            case .wouldAnswer(let reason):
                log.append(provider.id, .list, .wouldBeAsked, reason: reason, since: start)
                log.appendNotAsked(rest, .list, because: "'\(provider.id)' was chosen before")
                return provider.id
            case .wouldFail(let error) where !Self.fallthroughCodes.contains(error.code):
                log.append(provider.id, .list, .stopped, error: error.attributed(to: provider.id), since: start)
                log.appendNotAsked(rest, .list, because: "'\(provider.id)' failed before")
                return empty
            case .wouldFail(let error):
                log.append(provider.id, .list, .movedOn, error: error.attributed(to: provider.id), since: start)
            case .seesNothing:
                log.append(provider.id, .list, .none, reason: "it finds no identity", since: start)
                empty = empty ?? provider.id
            }
        }
        return empty
    }
}

extension IdentityList {
    fileprivate enum Prospect {
        /// The reason in words.
        case wouldAnswer(String)
        case wouldFail(ProviderError)
        case seesNothing
    }

    /// The expected result of ``/CertificateProviding/CertificateProvider/getCertificate(_:)``. A provider that does
    /// not predict its choice is expected to return one of the identities that it finds.
    fileprivate var prospect: Prospect {
        let seen = identities.count == 1 ? "one identity" : "\(identities.count) identities"
        let failure: ProviderError
        switch choice {
        case .success(let chosen)?:
            let name = (chosen.alias ?? chosen.certificateChain.first?.subject)?.withVisibleControls
            return .wouldAnswer("it finds \(seen)" + (name.map { " and would use '\($0)'" } ?? ""))
        case .failure(let error)?: failure = error
        case nil:
            guard identities.isEmpty else { return .wouldAnswer("it finds \(seen)") }
            let first = failures.first { !ProviderSequence.fallthroughCodes.contains($0.code) } ?? failures.first
            guard let first else { return .seesNothing }
            failure = first
        }
        return failure.code == .interactionRequired ? .wouldAnswer("the user would be asked") : .wouldFail(failure)
    }
}
