import ArgumentParser
import CertificateProviding
import FoundationEssentials

/// The option of commands that know the timer of `renew`.
struct RenewalTimer: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "How often the timer runs 'certprov renew'; default: 1h.",
            discussion: "There is a warning if a certificate lives too short for it.", valueName: "time"),
        transform: SpanOfTime.ofCertificates)
    var every: SpanOfTime?

    /// How many runs there are to be between the renewal point and the expiry: the first may come late, and one may fail.
    private static let runs = 3

    /// Returns a warning if the timer runs too seldom for a certificate; `nil` if it does not.
    func remark(on schedule: RenewalSchedule) -> String? {
        let period = every?.duration ?? .seconds(3600)
        let window = Duration.seconds(schedule.expiry.timeIntervalSince(schedule.due))
        guard window < period * Self.runs else { return nil }
        return
            "the certificate is to be renewed between \(schedule.due.rfc3339) and \(schedule.expiry.rfc3339), which is too short for "
            + "a timer that runs every \(every?.description ?? "hour"). If a timer renews it, run that more often, and say so with "
            + "--every; the page Renewal has the drop-in."
    }
}
