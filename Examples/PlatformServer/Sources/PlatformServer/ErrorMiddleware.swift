import Hummingbird
import Logging
import NIOCore

/// Answers an error with a status and one line of text, and logs what is not the client's fault.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = ServerContext

    func handle(
        _ request: Request, context: ServerContext, next: @concurrent (Request, ServerContext) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            response = try await next(request, context)
        } catch {
            response = Self.response(to: error, context.logger)
        }
        response.headers[.cacheControl] = "no-store"
        return response
    }

    private static func response(to error: any Error, _ logger: Logger) -> Response {
        let error = httpError(for: error, logger)
        var headers = error.headers
        headers[.contentType] = "text/plain; charset=UTF-8"
        let text = error.body ?? "\(error.status.reasonPhrase)."
        return Response(
            status: error.status, headers: headers, body: ResponseBody(byteBuffer: ByteBuffer(string: text + "\n")))
    }

    private static func httpError(for error: any Error, _ logger: Logger) -> HTTPError {
        switch error {
        case let error as HTTPError: return error
        case let error as AtomEntryReader.Failure: return HTTPError(.badRequest, message: error.message)
        case ConnectionStore.Failure.notYours:
            return HTTPError(.forbidden, message: "The connection id is not valid for this user or certificate.")
        case ConnectionStore.Failure.notFound: return HTTPError(.notFound, message: "There is no such connection.")
        case ConnectionStore.Failure.alreadyActivated: return BasicCredentials.refusal
        case let error as any HTTPResponseError: return HTTPError(error.status)
        default:
            logger.error("request failed", metadata: ["reason": "\(error)"])
            return HTTPError(.internalServerError)
        }
    }
}
