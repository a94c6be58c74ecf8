import Glibc
import TestSupport

/// Kills processes at moments that are spread over their whole run, however long that takes while much else is going on.
///
/// Not a wait for anything: where a kill lands is the point.
struct KillMoments {
    /// How many processes were still at work.
    private(set) var killed = 0
    private let wanted: Int
    private var attempts = 0
    /// About a run's length: it grows with each kill and shrinks with each process that has ended before. In small steps, so
    /// that the end of a run, where things are stored, is met as often as its beginning.
    private var length: Duration
    private var share = Double.random(in: 0..<1)

    /// - Parameters:
    ///   - wanted: How many processes to kill at work.
    ///   - length: A first guess at how long a run takes. A bad one costs rounds.
    init(_ wanted: Int, within length: Duration) {
        (self.wanted, self.length) = (wanted, length)
    }

    /// Whether kills are left. Gives up on processes that hardly ever are still at work.
    var areLeft: Bool { killed < wanted && attempts < 10 * wanted }

    /// Whether as many processes were killed as were to be.
    var haveLanded: Bool { killed >= wanted }

    /// Waits for the next moment, kills the process and waits for its end.
    mutating func kill(_ process: Subprocess) -> Output {
        // The golden ratio's multiples fall evenly, in whatever number.
        share = (share + 0.618034).truncatingRemainder(dividingBy: 1)
        attempts += 1
        usleep(UInt32(length * share / .microseconds(1)))
        process.kill()
        let output = process.wait()
        if output.signal == SIGKILL {
            killed += 1
            length = length * 1.05
        } else {
            length = length * 0.8
        }
        return output
    }
}
