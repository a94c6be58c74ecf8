import Foundation
import Hummingbird

/// A resource of an application: `/odata/APPLICATION/Hello` greets the principal of a registered connection.
struct HelloController: Sendable {
    let store: ConnectionStore
    let now: @Sendable () -> Date

    struct Greeting: ResponseCodable {
        var principal: String
        var connection: String
    }

    func addRoutes(to group: some RouterMethods<AuthenticatedContext>) {
        group.resource("odata/:application/Hello") { request, context in
            guard request.method == .get else { throw HTTPError.methodNotAllowed("GET") }
            let id = try request.requiredConnectionID
            let application = try context.parameters.require("application")
            do {
                let connection = try await store.connection(
                    id, application: application, principal: context.principal, at: now())
                return try Greeting(principal: connection.principal, connection: connection.id)
                    .response(from: request, context: context)
            } catch ConnectionStore.Failure.notFound {
                throw ConnectionStore.Failure.notYours
            }
        }
    }
}
