public import CertificateProviding
import FoundationEssentials
import Glibc
import Subprocess

/// Computes in G2, which OpenSSL cannot.
public protocol PairingComputing: Sendable {
    /// The product of G2's generator and a secret number: `xa‖xb‖ya‖yb`.
    func multiple(of number: SecretScalar) async throws(ProviderError) -> [UInt8]
}

/// The program `pairing-helper`, started for one answer.
public struct PairingHelper: PairingComputing {
    private let program: String
    private let time: Duration

    /// - Parameters:
    ///   - program: Its absolute path, or its name in PATH.
    ///   - time: How long it may take.
    public init(_ program: String, within time: Duration = .seconds(60)) {
        (self.program, self.time) = (program, time)
    }

    private struct Answer: Decodable {
        let point: String?
        let error: String?
    }

    public func multiple(of number: SecretScalar) async throws(ProviderError) -> [UInt8] {
        var digits = try number.bytes(count: 32).withUnsafeBytes { Self.digits($0) }
        defer { digits.withUnsafeMutableBytes { if let base = $0.baseAddress { explicit_bzero(base, $0.count) } } }
        let (status, output) = try await answer(to: Array("{\"multiply\": \"".utf8) + digits + Array("\"}\n".utf8))
        let answer = try? JSONDecoder().decode(Answer.self, from: Data(output))
        guard status.isSuccess, let point = answer?.point.flatMap { ByteText.bytes(hexadecimal: $0) },
            point.count == SplitKey.publicKeySize
        else {
            let problem = status.isSuccess ? "has not answered with a point" : "has failed (\(status))"
            throw failure(.unavailable, problem, answer?.error)
        }
        return point
    }

    private static func digits(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
        let digits = Array("0123456789abcdef".utf8)
        return bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }
    }

    private enum Outcome: Sendable {
        case ended(TerminationStatus, [UInt8])
        case overdue
    }

    private func answer(
        to line: [UInt8]
    ) async throws(ProviderError) -> (TerminationStatus, [UInt8]) {
        var options = PlatformOptions()
        options.createSession = true
        options.teardownSequence = [
            .send(signal: .kill, toProcessGroup: true, allowedDurationToNextStep: .seconds(1))
        ]
        let executable: Executable = program.hasPrefix("/") ? .path(Self.path(program)) : .name(program)
        let configuration = Configuration(executable: executable, platformOptions: options)
        let outcome: Outcome
        do {
            outcome = try await withThrowingTaskGroup(of: Outcome.self) { group in
                group.addTask {
                    let result = try await run(
                        configuration, input: .inputWriter, output: .bytes(limit: 1 << 16), error: .discarded
                    ) { execution in
                        _ = try? await execution.standardInputWriter.write(line)
                        try? await execution.standardInputWriter.finish()
                    }
                    return Outcome.ended(result.terminationStatus, result.standardOutput)
                }
                group.addTask { [time] in
                    try await Task.sleep(for: time)
                    return .overdue
                }
                defer { group.cancelAll() }
                return try await group.next() ?? .overdue
            }
        } catch {
            throw failure(.unavailable, "cannot be run", "\(error)")
        }
        guard case .ended(let status, let output) = outcome else {
            throw failure(.timedOut, "has not answered in time")
        }
        return (status, output)
    }

    /// The path is of a package that this one does not depend on; but a literal of it is a text.
    private static func path<Path: ExpressibleByStringLiteral>(_ text: String) -> Path
    where Path.StringLiteralType == String {
        Path(stringLiteral: text)
    }

    private func failure(
        _ code: ProviderError.Code, _ problem: String, _ reason: String? = nil
    ) -> ProviderError {
        let why = reason.map { ": \(DisplayText.visible(String($0.prefix(200))))" } ?? ""
        return ProviderError(
            code,
            "The program \(DisplayText.visible(program)) of 'SplitKey.pairing-helper' \(problem)\(why.hasSuffix(".") ? String(why.dropLast()) : why). It needs Python with pyblst."
        )
    }
}
