import Foundation
import Synchronization

/// The hashes that users have asked for, with their timestamps: each good for ten minutes, for its user.
final class GivenHashes: Sendable {
    private static let age = 600

    /// The user has asked for too many.
    struct Full: Error {
        /// The seconds until the first of them is over.
        let seconds: Int
    }

    /// By second, then by user.
    private let given = Mutex<[Int: [String: Set<String>]]>([:])
    private let limit: Int
    private let now: @Sendable () -> Date

    /// - Parameter limit: How many hashes a user may have. Others' do not count.
    init(limit: Int, now: @escaping @Sendable () -> Date) { (self.limit, self.now) = (limit, now) }

    private var time: Int { Int(now().timeIntervalSince1970) }

    /// Gives a hash to a user.
    ///
    /// - Returns: The timestamp.
    func give(_ hash: String, to user: String) throws(Full) -> Int {
        let time = time
        return try given.withLock { given throws(Full) in
            for old in given.keys where old < time - Self.age { given[old] = nil }
            let users = given.compactMapValues { $0[user] }
            let isNew = users[time]?.contains(hash) != true
            guard !isNew || users.values.reduce(0, { $0 + $1.count }) < limit else {
                throw Full(seconds: (users.keys.min() ?? time) + Self.age + 1 - time)
            }
            given[time, default: [:]][user, default: []].insert(hash)
            return time
        }
    }

    /// Whether a user was given a hash at a time. The user may come again with it.
    func contains(_ hash: String, _ timestamp: Int, of user: String) -> Bool {
        let time = time
        return time - Self.age <= timestamp && given.withLock { $0[timestamp]?[user]?.contains(hash) == true }
    }
}
