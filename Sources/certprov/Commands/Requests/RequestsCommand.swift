import ArgumentParser

/// The subcommands for signing requests of other applications: both sides.
struct RequestsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "requests",
        abstract: "Answer and send requests for signatures: authenticated, shown to a person, answered once.",
        subcommands: [RequestsServe.self, RequestsOpen.self, RequestsSend.self, RequestsLog.self],
        groupedSubcommands: [
            CommandGroup(
                name: "Requests that wait for a person",
                subcommands: [RequestsList.self, RequestsShow.self, RequestsApprove.self, RequestsDecline.self])
        ])
}
