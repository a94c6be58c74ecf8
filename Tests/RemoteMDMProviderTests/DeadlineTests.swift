import CertificateProviding
import Enrolment
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// `timeout` holds for a whole enrolment, and only for the server's time.
@Suite(.timeLimit(.minutes(20))) struct DeadlineTests {
    /// Each answer would do by itself, and without a limit for all of them the enrolment would come to its end.
    @Test func answersThatAreSlowTogetherAreGivenUp() async throws {
        let server = try ESTResponder(.basic, .init(wishes: ["hash:sha384"]))
        let fault = "fault-cacerts-slow-body-4000+csrattrs-slow-body-4000+slow-body-4000"
        let provider = try server.provider(label: fault, ["timeout": "8"], retryPolicy: RetryPolicy())
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .timedOut)
    }

    @Test("The time in which the user types the password does not count towards the timeout")
    func whatAPersonTakesIsNotCounted() async throws {
        let server = try ESTResponder(.basic)
        let clock = TurnedClock()
        let provider = try server.provider(["password-source": "prompt"], clock: clock)
        let slow = Person { _ in
            try? await clock.retryPolicy.sleep(.seconds(1000))
            return ESTServer.password
        }
        _ = try await provider.getCertificate(slow)
        #expect(clock.waits == [.seconds(1000)])
    }

    @Test("An optional request gets a quarter of the remaining time")
    func whatCanBeDoneWithoutHasAShareOfTheTime() async throws {
        let clock = TurnedClock()
        let timeBudget = TimeBudget(.seconds(16), clock.retryPolicy)
        for share in [4, 3] {
            let start = clock.retryPolicy.now()
            let end = try await timeBudget.spend(oneOf: 4) { end throws(ProviderError) in
                try? await clock.retryPolicy.sleep(.seconds(4))
                return end
            }
            #expect(end == start + .seconds(share))
        }
    }

    @Test func aServerThatHasUsedUpItsTimeIsAskedNothingMore() async throws {
        let clock = TurnedClock()
        let timeBudget = TimeBudget(.seconds(10), clock.retryPolicy)
        for left in [10, 6, 2] {
            let end = try await timeBudget.spend { end throws(ProviderError) in
                try? await clock.retryPolicy.sleep(.seconds(4))
                return end
            }
            #expect(end == clock.retryPolicy.now() + .seconds(left - 4))
        }
        let error = await #expect(throws: ProviderError.self) {
            try await timeBudget.spend { _ throws(ProviderError) in Issue.record("asked") }
        }
        #expect(error?.code == .timedOut)
    }
}
