import CertificateProviding

/// Which token gets the PIN, of those that have a login: never more than one, and none by chance. A PIN that is sent to
/// another token than its own counts there as a wrong one.
///
/// Only the decision: nothing is read and nothing is sent here.
enum LoginChoice {
    enum Verdict: Equatable {
        /// No login has to be made.
        case none
        /// The one with this index. Not `isMeant` where it is merely the only one there: a configured PIN may not be its
        /// own.
        case token(Int, isMeant: Bool)
        /// The PIN could be for any of these.
        case several([Int])
        /// A token that could not be read may be the one.
        case unreadable
    }

    /// The state of the tokens without a login.
    struct Sight {
        /// The tokens that show an identity that the URI matches.
        var holders: [Int]
        /// Whether all of them could be read.
        var isComplete = true
    }

    /// - Parameters:
    ///   - isLoggedIn: The tokens that have a login, in the order of their slots.
    ///   - namesToken: Whether the URI says which token is meant, and not only which kind.
    ///   - sight: Reads the tokens; called where that matters. Those that are logged in count as well: the identity may
    ///     be on one of them, and then none of the others gets its PIN.
    ///   - remembered: Returns those of the tokens that the identity was on which was chosen last; called where that
    ///     matters.
    static func verdict(
        on isLoggedIn: [Bool], namesToken: Bool, sight: () -> Sight,
        remembered: ([Int]) throws(ProviderError) -> [Int]
    ) throws(ProviderError) -> Verdict {
        guard isLoggedIn.contains(false) else { return .none }
        if isLoggedIn.count == 1, namesToken { return .token(0, isMeant: true) }
        let sight = sight()
        var meant = sight.holders.isEmpty ? Array(isLoggedIn.indices) : sight.holders
        if meant.count > 1 || sight.holders.isEmpty {
            let known = try remembered(meant)
            if !known.isEmpty {
                meant = known
            } else if sight.holders.isEmpty, !sight.isComplete {
                return .unreadable
            } else if isLoggedIn.count == 1 {
                return .token(0, isMeant: false)
            }
        }
        guard meant.contains(where: { !isLoggedIn[$0] }) else { return .none }
        return meant.count == 1 ? .token(meant[0], isMeant: true) : .several(meant)
    }
}
