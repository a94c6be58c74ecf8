import CertificateProviding
import Testing

@testable import PluginProtocol

/// The requests of one side as a value: without pipes, threads and a clock.
struct OutgoingRequestsTests {
    private let start = ContinuousClock.now

    private func request(_ limit: MessageChannel.Limit = .unlimited, isAwaited: Bool = false)
        -> OutgoingRequests.Request
    {
        OutgoingRequests.Request("sign", limit, counts: !isAwaited, at: start) { _ in }
    }

    /// The value, where expectations may change it.
    private final class Requests {
        var value = OutgoingRequests()
        let grace = Duration.seconds(2)

        private let start: OutgoingRequests.Instant

        init(at start: OutgoingRequests.Instant, concurrency: Int = .max) {
            self.start = start
            value.concurrency = concurrency
        }

        /// Adds a request whose line is its id.
        @discardableResult func add(_ request: OutgoingRequests.Request) -> UInt64 {
            let id = value.makeID()
            value.add(id, request, line: [UInt8(id)])
            return id
        }

        /// The lines that are sent now.
        func send() -> [UInt8] {
            var lines: [UInt8] = []
            while let line = value.nextLine(at: start) { lines += line }
            return lines
        }

        func answer(_ id: UInt64) -> String {
            switch value.answer(id) {
            case .request: "request"
            case .abandoned: "abandoned"
            case .none: "none"
            }
        }

        func rest(_ isResting: Bool, at time: OutgoingRequests.Instant) -> Bool { value.rest(isResting, at: time) }

        func cancel(_ id: UInt64, at time: OutgoingRequests.Instant) -> Bool {
            value.cancel(id, at: time, until: time + grace)
        }

        /// The requests whose time is over, and those whose cancellation was ignored.
        func expire(at time: OutgoingRequests.Instant) -> (late: [UInt64], ignored: [String]) {
            let (late, ignored) = value.expire(at: time, grace: grace)
            return (late.map(\.id), ignored)
        }
    }

    @Test func noMoreAreInFlightThanTheOtherSideTakes() {
        let requests = Requests(at: start, concurrency: 2)
        for _ in 0..<4 { requests.add(request()) }
        #expect(requests.send() == [1, 2])
        #expect(requests.answer(2) == "request")
        #expect(requests.send() == [3])
        #expect(requests.send() == [])
    }

    @Test("A request that the other side waits for is sent first")
    func oneThatTheOtherSideWaitsForGoesFirst() {
        let requests = Requests(at: start, concurrency: 1)
        for _ in 0..<2 { requests.add(request()) }
        #expect(requests.send() == [1])
        requests.add(request(isAwaited: true))
        #expect(requests.send() == [3])
        #expect(requests.answer(3) == "request")
        #expect(requests.send() == [])
        #expect(requests.answer(1) == "request")
        #expect(requests.send() == [2])
    }

    @Test func anAnswerIsTakenOnce() {
        let requests = Requests(at: start, concurrency: 1)
        let (first, second) = (requests.add(request()), requests.add(request()))
        _ = requests.send()
        #expect(requests.answer(second) == "none", "It is not sent.")
        #expect(requests.answer(first) == "request")
        #expect(requests.answer(first) == "none")
        #expect(requests.answer(99) == "none")
    }

    @Test func aLateRequestCountsUntilItIsAnswered() {
        let requests = Requests(at: start, concurrency: 1)
        let first = requests.add(request(.total(.seconds(5))))
        requests.add(request())
        #expect(requests.send() == [1])
        #expect(requests.expire(at: start + .seconds(4)).late.isEmpty)

        let late = requests.expire(at: start + .seconds(5))
        #expect(late.late == [first] && late.ignored == [])
        #expect(requests.send() == [])
        #expect(requests.value.nextDeadline == start + .seconds(7))

        #expect(requests.expire(at: start + .seconds(7)).ignored == ["sign"])
        #expect(requests.expire(at: start + .seconds(8)).ignored == [], "It is said once.")
        #expect(requests.answer(first) == "abandoned")
        #expect(requests.send() == [2])
    }

    @Test func aLateRequestThatWasNotSentIsNeverSent() {
        let requests = Requests(at: start, concurrency: 1)
        requests.add(request())
        let second = requests.add(request(.total(.seconds(5))))
        _ = requests.send()
        let late = requests.expire(at: start + .seconds(5))
        #expect(late.late == [second] && late.ignored == [])
        #expect(requests.answer(1) == "request")
        #expect(requests.send() == [])
        #expect(requests.value.nextDeadline == nil && requests.value.isEmpty)
    }

    @Test func aCancelledRequestWaitsForItsAnswerUntilTheDeadline() {
        let requests = Requests(at: start)
        let id = requests.add(request(.silence(.seconds(20), mayAsk: true)))
        _ = requests.send()
        #expect(requests.cancel(id, at: start))
        #expect(!requests.cancel(id, at: start), "The other side is told once.")
        requests.value.note(id, questions: 0, at: start + .seconds(1))
        #expect(requests.value.nextDeadline == start + requests.grace, "A sign of life does not extend it.")
        let late = requests.expire(at: start + requests.grace)
        #expect(late.late == [id] && late.ignored == ["sign"])
        #expect(requests.expire(at: start + .seconds(60)).ignored == [])
    }

    @Test func aCancelledRequestThatIsNotSentEndsAtOnce() {
        let requests = Requests(at: start, concurrency: 1)
        requests.add(request())
        let second = requests.add(request())
        _ = requests.send()
        #expect(!requests.cancel(second, at: start))
        #expect(requests.expire(at: start).late == [second])
        #expect(requests.expire(at: start + .seconds(60)).ignored == [])
    }

    @Test func silenceMayBeLongerWhileTheUserOrThisSideWorks() {
        let requests = Requests(at: start)
        let id = requests.add(request(.silence(.seconds(20), mayAsk: true)))
        #expect(requests.value.nextDeadline == start + .seconds(600), "It is not sent.")
        _ = requests.send()
        #expect(requests.value.nextDeadline == start + .seconds(20))
        func deadline(after seconds: Int, _ change: (OutgoingRequests.Instant) -> Void) -> Duration? {
            change(start + .seconds(seconds))
            return requests.value.nextDeadline.map { $0 - start }
        }
        #expect(deadline(after: 10) { requests.value.note(id, questions: 0, at: $0) } == .seconds(30))
        #expect(deadline(after: 11) { _ = requests.rest(true, at: $0) } == .seconds(311))
        #expect(deadline(after: 12) { requests.value.note(id, questions: 1, at: $0) } == .seconds(312))
        #expect(deadline(after: 13) { _ = requests.rest(false, at: $0) } == .seconds(313))
        #expect(deadline(after: 100) { requests.value.note(id, questions: -1, at: $0) } == .seconds(120))
    }

    @Test("Signs of life do not extend the whole time of a request", arguments: [(false, 30), (true, 300)])
    func aRequestThatIsAliveEndsAllTheSame(mayAsk: Bool, whole: Int) {
        let requests = Requests(at: start)
        let id = requests.add(request(.silence(.seconds(20), mayAsk: mayAsk)))
        _ = requests.send()
        for second in 1..<whole { requests.value.note(id, questions: 0, at: start + .seconds(second)) }
        #expect(requests.value.nextDeadline == start + .seconds(whole))
        #expect(requests.expire(at: start + .seconds(whole)).late == [id])
    }

    @Test("The whole time stands still while a question is open or this side works, for five minutes in all")
    func theWholeTimeStandsStill() {
        let requests = Requests(at: start)
        let id = requests.add(request(.silence(.seconds(20), mayAsk: false)))
        _ = requests.send()
        func deadline(after seconds: Int, _ change: (OutgoingRequests.Instant) -> Void) -> Duration? {
            change(start + .seconds(seconds))
            return requests.value.nextDeadline.map { $0 - start }
        }
        #expect(deadline(after: 5) { requests.value.note(id, questions: 1, at: $0) } == .seconds(305))
        #expect(deadline(after: 105) { requests.value.note(id, questions: -1, at: $0) } == .seconds(125))
        #expect(deadline(after: 120) { requests.value.note(id, questions: 0, at: $0) } == .seconds(130))
        #expect(deadline(after: 125) { _ = requests.rest(true, at: $0) } == .seconds(330))
        // Each message to this side begins another silence, and no other whole time.
        #expect(deadline(after: 300) { requests.value.note(id, questions: 0, at: $0) } == .seconds(330))
        #expect(deadline(after: 329) { _ = requests.rest(false, at: $0) } == .seconds(330))
    }

    @Test func aTotalTimeDoesNotRest() {
        let requests = Requests(at: start)
        requests.add(request(.total(.seconds(20))))
        #expect(requests.rest(true, at: start))
        #expect(!requests.rest(true, at: start), "It rests already.")
        _ = requests.send()
        #expect(requests.value.nextDeadline == start + .seconds(20))
    }

    @Test func atTheEndAllThatWaitAreTakenOut() {
        let requests = Requests(at: start, concurrency: 1)
        for _ in 0..<3 { requests.add(request(.total(.seconds(5)))) }
        _ = requests.send()
        #expect(requests.value.removeAll().count == 3)
        #expect(requests.value.isEmpty && requests.value.nextDeadline == nil && requests.send() == [])
    }
}
