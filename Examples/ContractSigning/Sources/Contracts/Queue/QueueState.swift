/// What the queue knows beside its contracts.
public struct QueueState: Codable, Equatable, Sendable {
    /// A call of another program that is to be made, or is being made.
    public struct PendingCallback: Codable, Equatable, Sendable {
        /// Distinguishes it from others.
        public var id: String
        public var url: String
        /// A callback that is written down before the event that it tells of; `nil` for one after it.
        public var condition: Condition?

        public init(id: String, url: String, condition: Condition? = nil) {
            (self.id, self.url, self.condition) = (id, url, condition)
        }
    }

    /// The state of a contract that shows that an event has happened.
    public struct Condition: Codable, Equatable, Sendable {
        public var contract: String
        public var state: ContractState

        public init(_ contract: String, is state: ContractState) { (self.contract, self.state) = (contract, state) }
    }

    /// The account that the contracts are of.
    public var account: String?
    /// The position of the last incremental synchronisation.
    public var cursor: String?
    public var pendingCallbacks: [PendingCallback] = []

    public init() {}
}
