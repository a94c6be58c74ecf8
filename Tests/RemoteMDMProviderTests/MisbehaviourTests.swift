import CertificateProviding
import Enrolment
import RemoteMDMProvider
import TestSupport
import Testing

/// A server that fails as it is told to. Whatever it does, there is a typed error in time, and the identity stays.
@Suite(.timeLimit(.minutes(20))) struct MisbehaviourTests {
    private typealias Code = ProviderError.Code

    /// Renews with a fault in the way.
    /// - Parameter storage: Where an identity may be, to be renewed.
    /// - Returns: What it failed with.
    private func failure(
        _ fault: String, on server: ESTResponder, _ settings: [String: String] = [:], in storage: OneIdentity = .init()
    ) async throws -> ProviderError? {
        let ordinary = try server.provider(storage: storage)
        let stored = try ordinary.getStoredCertificate()
        let first = if let stored { stored } else { try await ordinary.getCertificate(NoUserInteraction()) }
        let provider = try server.provider(storage: storage, label: fault, settings)
        var failure: ProviderError?
        do { _ = try await provider.getCertificate(NoUserInteraction()) } catch {
            failure = error
        }
        if failure != nil {
            #expect(try provider.getStoredCertificate()?.certificate == first.certificate, "\(fault)")
        }
        return failure
    }

    @Test func eachMisbehaviourIsATypedError() async throws {
        let server = try ESTResponder(.basic, .init(wishes: ["hash:sha384"]))
        let expected: [(String, Code?)] = [
            ("other-key", .protocolError), ("wrong-subject", nil), ("no-subject", .protocolError),
            ("server-only", .protocolError),
            ("untrusted", .protocolError),
            ("expired", .protocolError), ("not-yet-valid", .protocolError), ("not-yet-valid-60", nil),
            ("old-certificate", .protocolError), ("empty-bag", .protocolError), ("two-leaves", nil),
            ("no-intermediate", nil), ("not-base64", .protocolError), ("garbage", .protocolError),
            ("raw-der", .protocolError), ("pem", .protocolError), ("empty-body", .protocolError), ("unwrapped", nil),
            ("crlf", nil), ("trailing-nul", nil), ("created", nil), ("chunked", nil), ("no-length", nil),
            ("wrong-type", .protocolError), ("no-smime-type", nil),
            ("cte", nil), ("duplicate-status-header", nil), ("no-keep-alive", nil), ("slow-body", nil),
            ("close-after-request", .unavailable), ("half-close", .unavailable), ("endless", .protocolError),
            ("endless-length", .protocolError), ("429", .unavailable), ("redirect-307-same", nil),
            ("redirect-307-other", .configurationInvalid), ("redirect-302-loop", .protocolError),
            ("redirect-301-http", .configurationInvalid), ("cacerts-garbage", .protocolError),
            ("cacerts-status-500", .unavailable), ("csrattrs-garbage", .protocolError),
            ("csrattrs-status-500", .unavailable),
        ]
        for (fault, code) in expected {
            let failure = try await failure("fault-\(fault)", on: server)
            #expect(failure?.code == code, "\(fault): \(failure.map(String.init(describing:)) ?? "no failure")")
        }
    }

    @Test("The error passes on the server's Retry-After")
    func whenToComeBackIsPassedOn() async throws {
        let server = try ESTResponder(.basic)
        for fault in ["status-503-retry-120", "pending-1-retry-120"] {
            let failure = try await failure("fault-\(fault)", on: server, ["timeout": "110"])
            #expect(failure?.retryAfter == .seconds(120), "\(fault)")
        }
        let busy = try #require(try await failure("fault-status-429-retry-date-120", on: server, ["timeout": "110"]))
        #expect((.seconds(100)...(.seconds(121))).contains(try #require(busy.retryAfter)))
        #expect(busy.message.contains("; try again after 20"), "\(busy.message)")
    }

    /// Answers that do not come, or a byte at a time, or never end.
    @Test("An answer that hangs, drips or never ends is given up")
    func whatTakesTooLongIsGivenUp() async throws {
        let server = try ESTResponder(.basic)
        for fault in ["hang", "drip", "hang-body", "headers-endless"] {
            let failure = try await failure("fault-\(fault)", on: server, ["timeout": "2"])
            #expect([.timedOut, .protocolError].contains(failure?.code), "\(fault): \(String(describing: failure))")
        }
    }

    @Test func everyStatusIsATypedError() async throws {
        let server = try ESTResponder(.basic)
        let storage = OneIdentity()
        for status in 400...599 {
            let failure = try await failure("fault-status-\(status)", on: server, in: storage)
            let known: [Code] = [.rejected, .unavailable, .configurationInvalid]
            #expect(failure.map { known.contains($0.code) } == true, "\(status): \(String(describing: failure))")
            #expect(failure?.nativeCode == status)
        }
    }
}
