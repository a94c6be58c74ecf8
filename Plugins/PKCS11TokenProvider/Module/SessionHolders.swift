import CP11Kit
import Synchronization

/// Which session has got each of a module's handles last: one from before the token was away may have had the same
/// number, and be another provider's.
final class SessionHolders: Sendable {
    private final class Holder {
        weak var session: Session?
        /// What is left of it in its `deinit`.
        let identifier: ObjectIdentifier

        init(_ session: Session) {
            self.session = session
            self.identifier = ObjectIdentifier(session)
        }
    }

    private let holders = Mutex<[CK_SESSION_HANDLE: Holder]>([:])

    /// - Returns: The one before, if there still is one.
    func replace(with session: Session, for handle: CK_SESSION_HANDLE) -> Session? {
        holders.withLock { $0.updateValue(Holder(session), forKey: handle)?.session }
    }

    func remove(_ session: ObjectIdentifier, from handle: CK_SESSION_HANDLE) {
        holders.withLock { if $0[handle]?.identifier == session { $0[handle] = nil } }
    }
}
