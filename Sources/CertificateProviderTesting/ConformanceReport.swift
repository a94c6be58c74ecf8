import CertificateProviding

/// The results of a conformance suite.
public struct ConformanceReport: Sendable {
    /// One demand of the contract, and whether it holds.
    public struct Result: Sendable {
        /// The name of the check, such as `storedEqualsObtained`.
        public let name: String
        /// The sentence of the contract that demands it.
        public let demand: String
        /// The result of the check.
        public let outcome: Outcome
    }

    /// The outcome of a check.
    public enum Outcome: Sendable {
        /// The demand holds.
        case passed
        /// It does not hold; the text says how.
        case failed(String)
        /// It was not checked; the text says why.
        case skipped(String)
    }

    /// The results in the order of the checks.
    public private(set) var results: [Result] = []
    private let progress: @Sendable (Result) -> Void

    /// - Parameter progress: Gets each result as soon as it is known.
    package init(_ progress: @escaping @Sendable (Result) -> Void) { self.progress = progress }

    /// Whether no check has failed.
    public var isPassed: Bool { failures.isEmpty }

    /// The checks that have failed.
    public var failures: [Result] {
        results.filter { result in
            if case .failed = result.outcome { return true }
            return false
        }
    }

    /// Runs a check and notes its outcome.
    package mutating func check(
        _ name: String, _ demand: String, _ body: () async throws -> Void
    ) async {
        let outcome: Outcome
        do {
            try await body()
            outcome = .passed
        } catch let skip as Skip {
            outcome = .skipped(skip.reason)
        } catch let failure as Failure {
            outcome = .failed(failure.reason)
        } catch {
            outcome = .failed("The call throws an error: \(error)")
        }
        let result = Result(name: name, demand: demand, outcome: outcome)
        results.append(result)
        progress(result)
    }
}

extension ConformanceReport: CustomStringConvertible {
    /// A line for each check, and for each failure what the contract demands.
    public var description: String {
        results.map { result in
            switch result.outcome {
            case .passed: "passed   \(result.name)"
            case .skipped(let reason): "skipped  \(result.name): \(reason)"
            case .failed(let reason): "FAILED   \(result.name): \(reason)\n         The contract: \(result.demand)"
            }
        }.joined(separator: "\n")
    }
}

/// A demand that does not hold.
package struct Failure: Error {
    package let reason: String
    package init(reason: String) { self.reason = reason }
}

/// A check that does not apply.
package struct Skip: Error {
    package let reason: String
    package init(reason: String) { self.reason = reason }
}

/// Throws where something does not hold.
package func require(_ holds: Bool, _ reason: @autoclosure () -> String) throws {
    if !holds { throw Failure(reason: reason()) }
}

/// Returns the value; throws where there is none.
package func require<Value>(_ value: Value?, _ reason: @autoclosure () -> String) throws -> Value {
    guard let value else { throw Failure(reason: reason()) }
    return value
}
