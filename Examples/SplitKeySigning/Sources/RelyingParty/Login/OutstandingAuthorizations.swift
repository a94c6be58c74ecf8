import Foundation
import OAuth
import Synchronization

/// The logins that have begun, by their state: each for ten minutes and for one code.
final class OutstandingAuthorizations: Sendable {
    private static let age: TimeInterval = 600

    enum Choice {
        case one(AuthorizationRequest)
        case none
        /// There is no state, and several are meant.
        case several
    }

    private let requests = Mutex<[(request: AuthorizationRequest, begun: Date)]>([])
    private let limit: Int
    private let now: @Sendable () -> Date

    /// - Parameter limit: At how many logins the oldest goes. Beginning one needs no permission: to refuse new ones would keep all
    ///   users out.
    init(limit: Int, now: @escaping @Sendable () -> Date) { (self.limit, self.now) = (limit, now) }

    func add(_ request: AuthorizationRequest) {
        let now = now()
        requests.withLock { requests in
            requests.removeAll { now.timeIntervalSince($0.begun) >= Self.age }
            if requests.count >= limit { requests.removeFirst() }
            requests.append((request, now))
        }
    }

    /// Takes a request out, if its state is given: anybody may name none, and the only request stays until ``finish(_:)``.
    ///
    /// - Parameter state: `nil` for the only one that there is.
    func take(state: String?) -> Choice {
        let now = now()
        return requests.withLock { requests in
            requests.removeAll { now.timeIntervalSince($0.begun) >= Self.age }
            guard let state else {
                return requests.count > 1 ? .several : requests.last.map { .one($0.request) } ?? .none
            }
            guard let index = requests.firstIndex(where: { $0.request.state == state }) else { return .none }
            return .one(requests.remove(at: index).request)
        }
    }

    /// Removes a request whose code was right.
    func finish(_ request: AuthorizationRequest) {
        requests.withLock { requests in requests.removeAll { $0.request.state == request.state } }
    }
}
