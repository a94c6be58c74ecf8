import HTTPTypes
import Hummingbird

extension RouterMethods {
    /// Lets one handler answer some methods of a resource, and answers 405 to the others. Hummingbird answers 404 to them.
    func resource(
        _ path: RouterPath, _ methods: [HTTPRequest.Method],
        use handler: @Sendable @escaping (Request, Context) async throws -> Response
    ) {
        let allowed = methods.map(\.rawValue).joined(separator: ", ")
        for name in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            guard let method = HTTPRequest.Method(name) else { continue }
            if methods.contains(method) {
                on(path, method: method, use: handler)
            } else {
                on(path, method: method) { _, _ -> Response in
                    throw HTTPError(.methodNotAllowed, headers: [.allow: allowed], message: "Allowed: \(allowed).")
                }
            }
        }
    }
}
