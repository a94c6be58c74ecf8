import CertificateProviding
import Enrolment
import Foundation
import TestSupport
import Testing

@testable import ACMEProvider

/// The next step of an enrolment, by the status of its order (RFC 8555, section 7.1.6).
@Suite struct OrderTests {
    private func order(_ status: String) throws -> ACMEOrder {
        let text = #"{"status": "\#(status)", "authorizations": [], "finalize": "https://ca.example/finalize"}"#
        return try JSONDecoder().decode(ACMEOrder.self, from: Data(text.utf8))
    }

    @Test("Each status of an order has one next step, and nothing is requested twice", arguments: ACMEStatus.allCases)
    func theNextStep(status: ACMEStatus) throws {
        let (next, afterRequest): (ACMEOrder.Step, ACMEOrder.Step) =
            switch status {
            case .pending: (.prove, .wait)
            case .ready: (.finalise, .wait)
            case .processing: (.wait, .wait)
            case .valid: (.download, .download)
            case .invalid, .deactivated, .expired, .revoked: (.fail, .fail)
            }
        let order = try order(status.rawValue)
        #expect(ACMEOrder.next(order) == next && ACMEOrder.next(order, isFinalised: true) == afterRequest)
    }

    @Test(
        "An unknown status is an error with its word; the order stays", arguments: ["frozen", "Valid", "", "\u{1b}[2J"])
    func anUnknownStatus(word: String) async throws {
        let host = try Host()
        host.server.behave { $0.orderLooks = 10_000 }
        #expect(await code { _ = try await host.provider().getCertificate(NoUserInteraction()) } == .pending)
        let escaped = String(decoding: try JSONEncoder().encode(word), as: UTF8.self)
        host.server.fail("order", .body(#"{"status": \#(escaped), "authorizations": [], "finalize": ""}"#))
        let error = try #require(
            await failure { _ = try await host.provider().getCertificate(NoUserInteraction()) })
        #expect(error.code == .protocolError)
        #expect(error.message.contains("the status '\(DisplayText.visible(word))'"), "\(error)")
        host.server.behave { $0.orderLooks = 0 }
        _ = try await host.provider().getCertificate(NoUserInteraction())
        #expect(host.server.count(of: "newOrder") == 1 && host.server.mistakes == [])
    }
}
