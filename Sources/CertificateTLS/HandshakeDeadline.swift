import NIOCore
import Synchronization

/// The deadline of a handshake. The time in which the client's own key signs does not count, since the server does not
/// cause it.
final class HandshakeDeadline: Sendable {
    private let state: Mutex<State>
    private let eventLoop: any EventLoop
    /// The time limit of the key; `nil` if it has none, and its time counts.
    private let signatureTimeout: TimeAmount?
    private let fail: @Sendable (any Error) -> Void

    private struct State {
        var limit: NIODeadline
        var timer: Scheduled<Void>?
        /// The start of the signature in progress; `nil` if there is none.
        var signingSince: NIODeadline?
        var timeOfSignatures = TimeAmount.zero
        var isOver = false
    }

    /// Starts the timer.
    ///
    /// - Parameter fail: Called once with the error when the deadline passes, unless ``cancel()`` was called before.
    init(
        _ limit: NIODeadline, signatureTimeout: TimeAmount?, on eventLoop: any EventLoop,
        fail: @escaping @Sendable (any Error) -> Void
    ) {
        self.state = Mutex(State(limit: limit))
        self.eventLoop = eventLoop
        self.signatureTimeout = signatureTimeout
        self.fail = fail
        schedule(at: limit)
    }

    var limit: NIODeadline { state.withLock { $0.limit } }

    /// The total time that the key has been signing.
    var timeOfSignatures: TimeAmount {
        state.withLock { $0.timeOfSignatures + ($0.signingSince.map { .now() - $0 } ?? .zero) }
    }

    var isSigning: Bool { state.withLock { $0.signingSince != nil } }

    func signatureBegins() { state.withLock { $0.signingSince = .now() } }

    func signatureEnds() {
        let (timer, limit) = state.withLock { state -> (Scheduled<Void>?, NIODeadline) in
            guard let start = state.signingSince else { return (nil, state.limit) }
            let time = .now() - start
            state.signingSince = nil
            state.timeOfSignatures = state.timeOfSignatures + time
            if signatureTimeout != nil { state.limit = state.limit + time }
            return (state.isOver ? nil : state.timer, state.limit)
        }
        // It may have been set to when the key would have given up.
        guard let timer else { return }
        timer.cancel()
        schedule(at: limit)
    }

    func cancel() {
        let timer = state.withLock { state in
            state.isOver = true
            return state.timer
        }
        timer?.cancel()
    }

    private func schedule(at instant: NIODeadline) {
        let timer = eventLoop.scheduleTask(deadline: instant) { self.timerFired() }
        let isOver = state.withLock { state in
            state.timer = timer
            return state.isOver
        }
        if isOver { timer.cancel() }
    }

    private func timerFired() {
        enum Next { case wait(NIODeadline), fail(any Error), nothing }
        let next = state.withLock { state -> Next in
            if state.isOver { return .nothing }
            var end = state.limit
            // The key gives up by itself. A key that does not is given up two seconds later.
            if let start = state.signingSince, let signatureTimeout { end = start + signatureTimeout + .seconds(2) }
            if .now() < end { return .wait(end) }
            state.isOver = true
            return .fail(state.signingSince == nil ? ChannelError.connectTimeout(.zero) : SignatureOutstanding())
        }
        switch next {
        case .wait(let instant): schedule(at: instant)
        case .fail(let error): fail(error)
        case .nothing: break
        }
    }
}

/// The client's own key had not signed at the deadline.
struct SignatureOutstanding: Error {}

/// The server closed the connection while the client's own key was signing, or after it had signed slowly.
struct ClosedWhileSigning: Error { var time: TimeAmount }
