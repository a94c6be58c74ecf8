/// Tells challenges from what a key signs elsewhere.
package enum ChallengeFilter {
    package static func refusal(of challenge: [UInt8]) -> String? { nil }
}
