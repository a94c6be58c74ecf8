import TestSupport
import Testing

@testable import CertificateProviding

@Suite struct FileWatchTests {
    @Test("Files are read when two looks have seen the same, and at the third look that sees others each time")
    func whenFilesAreRead() {
        var watch = FileWatch<Int>()
        func due(_ stamps: [Int], inForce: Int = 0) -> [Bool] { stamps.map { watch.isDue($0, inForce: inForce) } }
        #expect(due([0, 0, 1, 1]) == [false, false, false, true])
        watch.succeeded()
        #expect(due([1, 2, 3, 4, 5, 6, 7], inForce: 1) == [false, false, false, true, false, false, true])
        #expect(due([8, 8]) == [false, true])
        // One that was settled in between begins anew.
        #expect(due([9, 9, 10, 11, 11], inForce: 9) == [false, false, false, false, true])
    }
}
