import TestSupport
import Testing

/// Processes that the tests start end on request.
@Suite struct SubprocessTests {
    @Test func aProgramEndsWhenItIsTold() async throws {
        let program = try Subprocess(["sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do read line; done"])
        #expect(program.readLine() == "ready")
        program.stop()
        #expect(program.wait(seconds: 0) == 7)
    }
}
