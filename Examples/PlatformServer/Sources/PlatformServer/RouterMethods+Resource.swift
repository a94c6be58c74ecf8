import HTTPTypes
import Hummingbird

extension RouterMethods {
    /// Lets one handler answer every method of a resource. Hummingbird answers 404 where a path has no handler for a method.
    func resource(
        _ path: RouterPath, use handler: @Sendable @escaping (Request, Context) async throws -> Response
    ) {
        for name in ["GET", "HEAD", "POST", "PUT", "MERGE", "PATCH", "DELETE", "OPTIONS"] {
            if let method = HTTPRequest.Method(name) { on(path, method: method, use: handler) }
        }
    }
}

extension HTTPError {
    static func methodNotAllowed(_ allowed: String) -> Self {
        HTTPError(.methodNotAllowed, headers: [.allow: allowed], message: "Allowed: \(allowed).")
    }
}
