import Foundation
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore

/// The two listeners of the server. They differ in how they authenticate requests.
struct PlatformServer: Sendable {
    let applications: Set<String>
    /// In front of every path, such as `/suffix/farm`, or empty.
    let pathPrefix: String
    let store: ConnectionStore
    let writer: AtomEntryWriter
    let logger: Logger
    var now: @Sendable () -> Date = { Date() }

    /// - Parameter page: For administrators; nil where there are none.
    func router(authenticatedBy authenticator: any Authenticator, page: ConnectionsPage? = nil) -> Router<ServerContext>
    {
        let router = Router(context: ServerContext.self)
        router.add(middleware: LogRequestsMiddleware(.info))
        router.add(middleware: ErrorMiddleware())
        router.add(middleware: AuthenticationMiddleware(authenticator: authenticator))
        let group = router.group(RouterPath(pathPrefix), context: AuthenticatedContext.self)
        ConnectionsController(applications: applications, store: store, writer: writer, now: now).addRoutes(to: group)
        HelloController(store: store, now: now).addRoutes(to: group)
        page?.addRoutes(to: group)
        return router
    }

    func application(
        _ router: Router<ServerContext>, at address: BindAddress, server: HTTPServerBuilder,
        onRunning: @escaping @Sendable (any Channel) async -> Void = { _ in }
    ) -> Application<RouterResponder<ServerContext>> {
        Application(
            router: router, server: server, configuration: .init(address: address), onServerRunning: onRunning,
            logger: logger)
    }
}

extension HTTP1Channel.Configuration {
    /// The certificate of a proxied client is a header field.
    static let platform = Self(
        idleTimeout: .seconds(60),
        httpDecoderConfiguration: .init(
            maxHeaderFieldSize: 16 * 1024, maxHeaderListSize: 32 * 1024, maxHeaderFieldCount: 100))
}
