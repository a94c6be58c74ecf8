import Foundation
import Hummingbird
import NIOCore

/// The registration protocol: `/odata/applications/{latest|v1}/APPLICATION/Connections`.
struct ConnectionsController: Sendable {
    let applications: Set<String>
    let store: ConnectionStore
    let writer: AtomEntryWriter
    let now: @Sendable () -> Date

    func addRoutes(to group: some RouterMethods<AuthenticatedContext>) {
        group.resource("odata/applications/:version/:application/:resource") { request, context in
            try await handle(request, context)
        }
    }

    private func handle(_ request: Request, _ context: AuthenticatedContext) async throws -> Response {
        let application = try context.parameters.require("application")
        guard ["latest", "v1"].contains(context.parameters.get("version")), applications.contains(application),
            let resource = Resource(try context.parameters.require("resource"))
        else { throw HTTPError(.notFound, message: "There is no such application or collection.") }

        // HTTPRequest.Method has no constant for MERGE (OData 2).
        let method = request.method.rawValue
        if resource == .collection, method == "POST" { return try await register(request, context, application) }
        guard ["GET", "PUT", "MERGE", "DELETE"].contains(method) else {
            throw HTTPError.methodNotAllowed((resource == .collection ? "POST, " : "") + "GET, PUT, MERGE, DELETE")
        }
        let id = try request.requiredConnectionID
        if case .connection(let named) = resource, named != id { throw ConnectionStore.Failure.notYours }
        switch method {
        case "GET":
            let connection = try await store.connection(
                id, application: application, principal: context.principal, at: now())
            return answer(.ok, connection, request)
        case "DELETE":
            try await store.delete(id, application: application, principal: context.principal)
            return Response(status: .ok)
        default:
            let properties = try await properties(of: request)
            let connection = try await store.update(
                id, application: application, principal: context.principal, at: now()
            ) { stored in
                if method == "PUT" { stored = properties } else { stored.merge(properties) { $1 } }
            }
            return answer(.ok, connection, request)
        }
    }

    private func register(
        _ request: Request, _ context: AuthenticatedContext, _ application: String
    ) async throws -> Response {
        let proposed = try request.connectionID
        let (connection, isNew) = try await store.register(
            proposed ?? .random(), application: application, principal: context.principal,
            properties: try await properties(of: request), activation: context.activation, at: now())
        var response = answer(isNew ? .created : .ok, connection, request)
        response.headers[.location] = path(of: connection, request)
        response.setCookie(
            Cookie(name: ConnectionID.fieldName, value: connection.id, path: "/", secure: true, httpOnly: true))
        return response
    }

    private func properties(of request: Request) async throws -> ClientProperties {
        guard let type = request.headers[.contentType].flatMap(MediaType.init(from:)), type.isType(.atom) else {
            throw HTTPError(.unsupportedMediaType, message: "The content type is not application/atom+xml.")
        }
        let body = try await request.body.collect(upTo: AtomEntryReader.maximumBodyLength)
        return try AtomEntryReader.properties(in: Data(body.readableBytesView))
    }

    private func answer(_ status: HTTPResponse.Status, _ connection: Connection, _ request: Request) -> Response {
        let entry = writer.entry(for: connection, path: path(of: connection, request))
        return Response(
            status: status, headers: [.contentType: "application/atom+xml; charset=UTF-8"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: entry)))
    }

    private func path(of connection: Connection, _ request: Request) -> String {
        let collection = request.uri.path.split(separator: "/").dropLast()
        return "/\(collection.joined(separator: "/"))/Connections('\(connection.id)')"
    }

    private enum Resource: Equatable {
        case collection
        case connection(ConnectionID)

        init?(_ component: String) {
            guard let text = component.removingPercentEncoding else { return nil }
            if text == "Connections" {
                self = .collection
            } else if text.hasPrefix("Connections('"), text.hasSuffix("')"),
                let id = ConnectionID(text.dropFirst("Connections('".count).dropLast("')".count))
            {
                self = .connection(id)
            } else {
                return nil
            }
        }
    }
}

extension MediaType {
    fileprivate static let atom = MediaType(type: .application, subType: "atom+xml")
}
