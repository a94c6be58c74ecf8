import Foundation
import HTTPTypes
import Hummingbird
import NIOCore
import NIOPosix

/// HTTP Basic (RFC 7617) with the users file, and with the passwords of users who activated themselves.
struct BasicCredentials: Authenticator {
    private let users: Users
    private let store: ConnectionStore
    private let threads: NIOThreadPool
    /// Lets an unknown user take as long as a wrong password.
    private let decoy: PasswordHash

    init(users: Users, store: ConnectionStore, threads: NIOThreadPool = .singleton) throws {
        self.users = users
        self.store = store
        self.threads = threads
        decoy = try PasswordHash(of: UUID().uuidString)
    }

    func authenticate(_ request: Request, on channel: any Channel) async throws -> Authentication {
        guard let (name, password) = Self.credentials(in: request.headers[.authorization]) else { throw Self.refusal }
        let authentication = Authentication(principal: Principal(user: name))
        switch users[name] {
        case nil:
            _ = try await matches(decoy, password)
            throw Self.refusal
        case .password(let hash):
            guard try await matches(hash, password) else { throw Self.refusal }
            return authentication
        case .activation(let code):
            if let hash = try await store.password(ofUser: name, activatedWith: code) {
                guard try await matches(hash, password) else { throw Self.refusal }
                return authentication
            }
            let given = request.method == .post ? request.headers["X-Activation-Code"] : nil
            guard try await matches(given == nil ? decoy : code, given ?? password), PasswordHash.isAcceptable(password)
            else { throw Self.refusal }
            let hash = try await threads.runIfActive { try PasswordHash(of: password) }
            return Authentication(
                principal: authentication.principal, activation: Activation(user: name, code: code, password: hash))
        }
    }

    private func matches(_ hash: PasswordHash, _ password: String) async throws -> Bool {
        try await threads.runIfActive { try hash.matches(password) }
    }

    /// One answer for every mistake: it does not tell which users exist.
    static let refusal = HTTPError(
        .unauthorized, headers: [.wwwAuthenticate: #"Basic realm="platform-server", charset="UTF-8""#],
        message: "The user name or the password is wrong.")

    private static func credentials(in header: String?) -> (name: String, password: String)? {
        guard let header, let space = header.firstIndex(of: " "), header[..<space].lowercased() == "basic",
            let data = Data(base64Encoded: String(header[space...].drop { $0 == " " })),
            let text = String(data: data, encoding: .utf8), let colon = text.firstIndex(of: ":")
        else { return nil }
        return (String(text[..<colon]), String(text[text.index(after: colon)...]))
    }
}
