import Hummingbird
import NIOCore

/// Finds out who sent a request.
protocol Authenticator: Sendable {
    /// - Throws: An `HTTPError` for the client: 401 to try again with a password, 403 for a useless certificate.
    func authenticate(_ request: Request, on channel: any Channel) async throws -> Authentication
}

struct Authentication: Sendable {
    var principal: Principal
    /// The activation that this registration completes.
    var activation: Activation?
}

/// A user's first registration. It consumes the activation code and gives the user a password.
struct Activation: Sendable {
    var user: String
    var code: PasswordHash
    var password: PasswordHash
}

/// The context of a request that has arrived.
struct ServerContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    let channel: any Channel
    var authentication: Authentication?

    init(source: ApplicationRequestContextSource) {
        coreContext = .init(source: source)
        channel = source.channel
    }
}

/// The context of a request whose principal is known.
struct AuthenticatedContext: ChildRequestContext {
    var coreContext: CoreRequestContextStorage
    let principal: Principal
    let activation: Activation?

    init(context: ServerContext) throws {
        guard let authentication = context.authentication else { throw HTTPError(.unauthorized) }
        coreContext = context.coreContext
        principal = authentication.principal
        activation = authentication.activation
    }
}

struct AuthenticationMiddleware: RouterMiddleware {
    typealias Context = ServerContext

    let authenticator: any Authenticator

    func handle(
        _ request: Request, context: ServerContext, next: @concurrent (Request, ServerContext) async throws -> Response
    ) async throws -> Response {
        var context = context
        context.authentication = try await authenticator.authenticate(request, on: context.channel)
        return try await next(request, context)
    }
}
