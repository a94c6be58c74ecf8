import Glibc
package import Synchronization

/// The signal that is ending the process, where the program ends its parts first.
package enum EndingSignal {
    /// The number of the signal, or zero. Set by a signal handler, which gets only this number.
    package static let number = Atomic<Int32>(0)

    /// Blocks forever if a signal is ending the process, so that the signal ends it and there is no more output.
    package static func leaveToSignal() { while number.load(ordering: .acquiring) != 0 { pause() } }
}
