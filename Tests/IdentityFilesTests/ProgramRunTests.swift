import Testing

@testable import ProgramRun

@Suite struct ProgramRunTests {
    @Test(
        "A program ends in time that leaves its process group or fills its pipe, also where a process cannot be watched",
        .timeLimit(.minutes(5)), arguments: [true, false])
    func programsThatDoNotEndByThemselves(isWatched: Bool) throws {
        func run(_ script: String, atMost time: Duration) -> ProgramRun.Failure? {
            let program = ProgramRun(["/usr/bin/perl", "-e", script], atMost: time)
            do throws(ProgramRun.Failure) {
                // A kernel before 5.3 cannot, nor some sandboxes.
                if isWatched { try program.run() } else { try program.run { _ in -1 } }
            } catch { return error }
            return nil
        }
        let left = run("setpgrp(0, getpgrp(getppid())); sleep 1000", atMost: .milliseconds(500))
        #expect(left?.isTimeout == true)
        #expect(run("sleep 1000", atMost: .milliseconds(500))?.isTimeout == true)
        #expect(run("print 'x' x 300_000", atMost: .seconds(240)) == nil)
        let failed = run("print 'x' x 300_000, 'the end'; exit 3", atMost: .seconds(240))
        #expect(failed?.reason.contains("failed with status 3") == true && failed?.reason.hasSuffix("the end") == true)
    }
}
