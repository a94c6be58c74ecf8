extension RegistrationMachine {
    /// The machine as a graph for Graphviz's `dot`: an edge for each event that changes the state. Leaves refused events out.
    package static var picture: String {
        var edges: [(from: State, to: State, labels: [String])] = []
        for state in State.allCases {
            for (name, event) in Self.events(in: state) {
                guard let transition = next(state, event), transition.state != state else { continue }
                let label = transition.effect.map { "\(name) / \($0.rawValue)" } ?? name
                if let known = edges.firstIndex(where: { $0.from == state && $0.to == transition.state }) {
                    if !edges[known].labels.contains(label) { edges[known].labels.append(label) }
                } else {
                    edges.append((state, transition.state, [label]))
                }
            }
        }
        let nodes = State.allCases.map { state in
            "    \(state.rawValue) [shape=\(state.isAtRest ? "box, style=bold" : "ellipse")];\n"
        }
        let lines = edges.map { edge in
            "    \(edge.from.rawValue) -> \(edge.to.rawValue) [label=\"\(edge.labels.joined(separator: "\\n"))\"];\n"
        }
        return "digraph registration {\n    node [fontsize=12];\n    edge [fontsize=10];\n" + (nodes + lines).joined()
            + "}\n"
    }

    /// The events with their names: the situation is a part of it where it counts.
    private static func events(in state: State) -> [(String, Event)] {
        let commands = Command.allCases.flatMap { command -> [(String, Event)] in
            let events = Situation.allCases.map { ($0, Event.command(command, $0)) }
            if Set(events.map { next(state, $0.1) }).count == 1 { return [(command.rawValue, events[0].1)] }
            return events.map { ("\(command.rawValue) (\($0.0.rawValue))", $0.1) }
        }
        return commands + [("done", .done), ("failed", .failed), ("destroyed", .destroyed)]
    }
}
