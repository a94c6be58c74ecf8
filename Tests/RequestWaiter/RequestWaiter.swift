import CertificateProviding
import Foundation
import Glibc
import IdentityStore
import SigningRequests

/// Does what a signer does with the state directory of requests, says each step on a line, and may be killed at any.
///
///     RequestWaiter DIRECTORY journal NAME COUNT    writes so many lines for signatures: began DIGEST, signed DIGEST
///     RequestWaiter DIRECTORY race NAME LIMIT COUNT  begins so many unattended signatures, at most LIMIT an hour: begun DIGEST, repeated, tooMany
///     RequestWaiter DIRECTORY wait CLIENT COUNT     waits for an answer to so many questions, one after the other: waits ID, the answer
///     RequestWaiter DIRECTORY lock COUNT            has the lock of the terminal so often: asks, over
///     RequestWaiter DIRECTORY ask DIGEST            asks the journal: was it signed by client 1, and how many KiB were used for that
@main enum RequestWaiter {
    static func main() async throws {
        signal(SIGXFSZ, SIG_IGN)
        let arguments = CommandLine.arguments
        guard arguments.count > 3 else { throw ProviderError(.configurationInvalid, "DIRECTORY MODE …") }
        do {
            try await run(arguments[2], in: arguments[1], Array(arguments[3...]))
        } catch let error as ProviderError {
            say(error)
        } catch let refusal as PendingRequests.Refusal {
            switch refusal {
            case .tooMany(let reason): say("tooMany: \(reason)")
            case .notStored(let error): say(error)
            }
        }
    }

    private static func run(_ mode: String, in directory: String, _ arguments: [String]) async throws {
        let journal = RequestJournal(directory: directory)
        let count = arguments.last.flatMap { Int($0) } ?? 1
        switch mode {
        case "journal":
            for index in 0..<count {
                let digest = digest(arguments[0], index)
                let entry = JournalEntry(
                    time: Date(), client: 1, requestID: String(repeating: "r", count: index % 60),
                    operation: .signPDF, digest: digest, outcome: .signed, approver: JournalEntry.unattended,
                    fingerprint: nil, peer: "pid \(getpid())")
                let open = try journal.begin(entry)
                say("began \(digest)")
                if variable("HOLD").isEmpty == false { _ = readLine() }
                try open.finish(outcome: .signed)
                say("signed \(digest)")
            }
        case "race":
            for index in 0..<count {
                let digest = digest(arguments[0], index)
                let entry = JournalEntry(
                    time: Date(), client: 1, requestID: nil, operation: .signChallenge, digest: digest,
                    outcome: .signed,
                    approver: JournalEntry.unattended, fingerprint: nil, peer: "pid \(getpid())")
                switch try journal.beginUnattended(entry, perHour: Int(arguments[1]) ?? 0) {
                case .begun(let line):
                    try line.finish(outcome: .signed)
                    say("begun \(digest)")
                case .repeated: say("repeated")
                case .tooMany: say("tooMany")
                }
            }
        case "wait":
            let requests = PendingRequests(directory: directory)
            for _ in 0..<count {
                // A PDF by its first bytes.
                let data = Array("%PDF-1.7 \(arguments[0])".utf8)
                let question = SigningQuestion(
                    id: "", operation: .signPDF, client: Int(arguments[0]) ?? 0, clientName: variable("CLIENT_NAME"),
                    serviceName: variable("TEXT"), documentName: variable("TEXT"), requestID: variable("TEXT"),
                    size: data.count, digest: variable("DIGEST"), signer: "CN=signer", fingerprint: "00ff",
                    signedBefore: Date(timeIntervalSince1970: 1_700_000_000), peer: variable("TEXT"),
                    deadline: Date().addingTimeInterval(600))
                let request = try requests.admit(
                    question, data: data, logo: ("png", [1, 2, 3]), isQueued: variable("ELSEWHERE").isEmpty)
                say("waits \(request.question.id)")
                say("\(try await QueuePrompt(requests).answer(to: request.question, within: .seconds(600)))")
                request.remove()
            }
        case "lock":
            for _ in 0..<count {
                guard let lock = try await TerminalLock.acquire(in: directory, within: .seconds(600)) else { return }
                // Another one at the same time would have made it.
                let mark = directory + "/mark"
                let file = open(mark, O_CREAT | O_EXCL | O_WRONLY, 0o600)
                say(file >= 0 ? "asks" : "two questions at a time")
                close(file)
                if variable("HOLD").isEmpty == false { _ = readLine() }
                unlink(mark)
                withExtendedLifetime(lock) { say("over") }
            }
        default:
            let before = residentMemory()
            let wasSigned = try journal.wasSigned(arguments[0], client: 1, within: .seconds(86_400))
            let approvals = try journal.unattendedApprovals(client: 1, within: .seconds(3600))
            say("\(wasSigned) \(approvals) \(residentMemory() - before)")
        }
    }

    /// Writes a line at once: its reader may kill this process then.
    private static func say(_ text: some CustomStringConvertible) {
        let line = Array("\(text)\n".utf8)
        _ = write(STDOUT_FILENO, line, line.count)
    }

    /// 64 digits.
    private static func digest(_ name: String, _ index: Int) -> String {
        let digits = name.utf8.map { String($0, radix: 16) }.joined() + "e" + String(index)
        return digits + String(repeating: "0", count: max(0, 64 - digits.count))
    }

    private static func variable(_ name: String) -> String { ProcessInfo.processInfo.environment[name] ?? "" }

    /// The most that was ever in memory, in KiB.
    private static func residentMemory() -> Int {
        let status = (try? String(contentsOfFile: "/proc/self/status", encoding: .utf8)) ?? ""
        let line = status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
        return line?.split(separator: " ").compactMap { Int($0) }.first ?? 0
    }
}
