import CertificateProviding
import HTTPTypes
import Hummingbird
import Logging
import NIOCore

/// Answers an error, and logs each request: the method, the path and the status. Queries, headers and bodies are in no log, as there
/// are codes and tokens in them.
struct ErrorMiddleware: RouterMiddleware {
    typealias Context = BasicRequestContext

    func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do { response = try await next(request, context) } catch {
            response = try Self.response(to: error, context.logger)
        }
        response.headers[.cacheControl] = "no-store"
        context.logger.info(
            "request",
            metadata: [
                "method": "\(request.method.rawValue)", "path": "\(DisplayText.visible(request.uri.path))",
                "status": "\(response.status.code)",
            ])
        // A body would be taken for the next answer.
        return request.method == .head ? response.createHeadResponse() : response
    }

    private static func response(to error: any Error, _ logger: Logger) throws -> Response {
        switch error {
        case let error as HTTPError:
            // Its text quotes nothing of the request.
            logger.info("request refused", metadata: ["reason": "\(error.body ?? error.status.reasonPhrase)"])
            return try .json(
                error.status, ErrorAnswer(message: error.body ?? "\(error.status.reasonPhrase)."),
                headers: error.headers)
        case let error as any HTTPResponseError:
            return try .json(error.status, ErrorAnswer(message: "\(error.status.reasonPhrase)."))
        case let error as ProviderError where error.reason == .verifierNotAsked:
            logger.error("the verifier was not asked", metadata: ["reason": "\(error)"])
            return try .json(
                .serviceUnavailable,
                ErrorAnswer(
                    message:
                        "The verifier was not asked, and the signature does not count. Look for the reason in the log of the relying party, or try again later.",
                    verifier: "not asked"))
        case let error as ProviderError where !ofThisHost.contains(error.code):
            // The server that is asked has the answer. Its name and reason are for the log.
            logger.error("another server failed", metadata: ["reason": "\(error)"])
            return try .json(
                error.code == .timedOut ? .gatewayTimeout : .badGateway,
                ErrorAnswer(
                    message:
                        "The relying party cannot reach the OpenID provider or the verifier, or is not accepted there (\(error.code.rawValue)). Look for the reason in the log of the relying party."
                ))
        default:
            logger.error("request failed", metadata: ["reason": "\(error)"])
            return try .json(
                .internalServerError, ErrorAnswer(message: "The relying party failed. The reason is in its log."))
        }
    }

    private static let ofThisHost: Set<ProviderError.Code> = [
        .storeReadFailed, .storeWriteFailed, .deleteFailed, .internal,
    ]
}

extension ProviderError.Reason {
    /// The verifier has not got the signature, or says that it has not counted it.
    static let verifierNotAsked = Self(rawValue: "verifierNotAsked")
}

extension ProviderError {
    /// The error with the reason `verifierNotAsked`.
    var beforeVerification: Self {
        var copy = self
        copy.reason = .verifierNotAsked
        return copy
    }
}

struct ErrorAnswer: Encodable {
    let message: String
    /// `not asked` where that is certain: the PIN of the signature is not used up.
    var verifier: String?
}
