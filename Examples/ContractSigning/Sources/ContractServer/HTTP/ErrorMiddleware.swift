import CertificateProviding
import Contracts
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import NIOHTTP1
import NIOSSL

/// Answers an error, and logs each request: the method, the path and the status. Queries, headers and bodies are in no log, as there
/// are secrets in them.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = ServerContext

    func handle(
        _ request: Request, context: ServerContext, next: @concurrent (Request, ServerContext) async throws -> Response
    ) async throws -> Response {
        // RFC 7030, section 4.2.3: text for a person.
        let isText = request.uri.path.hasPrefix("/.well-known/est/")
        var response: Response
        do {
            response = try await next(request, context)
        } catch {
            response = Self.response(to: error, isText: isText, context.logger)
        }
        response.headers[.cacheControl] = "no-store"
        // RFC 9110, section 9.3.2. The client would take a body for the begin of the next answer.
        if request.method == .head { response = response.createHeadResponse() }
        context.logger.info(
            "request",
            metadata: [
                "method": "\(request.method.rawValue)", "path": "\(DisplayText.visible(request.uri.path))",
                "status": "\(response.status.code)",
            ])
        return response
    }

    private static func response(to error: any Error, isText: Bool, _ logger: Logger) -> Response {
        let (status, headers, message, members) = parts(of: error, logger)
        guard !isText else { return .text(status, "\(message)\n", headers: headers) }
        return .json(status, [.init("error", .string(message))] + members, headers: headers)
    }

    private static func parts(
        of error: any Error, _ logger: Logger
    ) -> (HTTPResponse.Status, HTTPFields, String, [JSONValue.Member]) {
        switch error {
        case let error as HTTPError:
            return (error.status, error.headers, error.body ?? "\(error.status.reasonPhrase).", [])
        case let refusal as Refusal:
            let (status, members) = parts(of: refusal)
            return (status, [:], refusal.message, members)
        case let error as any HTTPResponseError: return (error.status, [:], "\(error.status.reasonPhrase).", [])
        case is HTTPParserError: return (.badRequest, [:], "The request is not valid HTTP.", [])
        case NIOSSLError.uncleanShutdown, is ChannelError:
            // The client has gone.
            return (.badRequest, [:], "The request is not complete.", [])
        default:
            logger.error("request failed", metadata: ["reason": "\(error)"])
            return (.internalServerError, [:], "The server failed. The reason is in its log.", [])
        }
    }

    private static func parts(of refusal: Refusal) -> (HTTPResponse.Status, [JSONValue.Member]) {
        switch refusal.reason {
        case .notFound: (.notFound, [])
        case .invalid(let member):
            (.unprocessableContent, member.map { [.init("member", .string($0))] } ?? [])
        case .tooLarge: (.contentTooLarge, [])
        case .wrongState: (.conflict, [])
        case .wrongCode(let left): (.forbidden, [.init("tries_left", .number("\(left)"))])
        case .codeExpired, .codeSpent: (.gone, [])
        case .tooManyCodes: (.tooManyRequests, [])
        case .noNotifier: (.serviceUnavailable, [])
        }
    }
}
