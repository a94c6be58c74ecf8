import CertificateProviding

/// What ``LogonManager/obtain(_:_:)`` would come to, said without asking any provider for an identity.
extension LogonManager {
    /// Returns the provider that the identity would be taken from: the first that would choose one, would have to ask a
    /// person, or cannot say. When none would, the first that sees nothing: it may be able to get one all the same.
    func forecast(_ log: inout DecisionLog) async -> ProviderID? {
        var empty: ProviderID?
        for (index, provider) in providers.enumerated() {
            let rest = providers[(index + 1)...]
            let start = uptime()
            guard let lister = provider.listing else {
                log.append(provider.id, .get, .wouldBeAsked, reason: "it cannot say beforehand what it has")
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
                log.append(provider.id, .list, .none, reason: "it sees no identity", since: start)
                empty = empty ?? provider.id
            }
        }
        return empty
    }
}

extension IdentityList {
    fileprivate enum Prospect {
        /// Why, in words.
        case wouldAnswer(String)
        case wouldFail(CertificateProviderError)
        case seesNothing
    }

    /// What ``/CertificateProviding/CertificateProvider/getCertificate(_:)`` would come to. A provider that does not
    /// say itself is taken to answer with what it sees.
    fileprivate var prospect: Prospect {
        let seen = identities.count == 1 ? "one identity" : "\(identities.count) identities"
        let failure: CertificateProviderError
        switch choice {
        case .success(let chosen)?:
            let name = (chosen.alias ?? chosen.certificateChain.first?.subject)?.withVisibleControls
            return .wouldAnswer("it sees \(seen)" + (name.map { " and would take '\($0)'" } ?? ""))
        case .failure(let error)?: failure = error
        case nil:
            guard identities.isEmpty else { return .wouldAnswer("it sees \(seen)") }
            let first = failures.first { !LogonManager.fallthroughCodes.contains($0.code) } ?? failures.first
            guard let first else { return .seesNothing }
            failure = first
        }
        return failure.code == .interactionRequired ? .wouldAnswer("a person would be asked") : .wouldFail(failure)
    }
}
