import ArgumentParser
import AsyncHTTPClient
import Configuration
import X509
struct A: ParsableCommand {
    @Option var x: String?;
    func run() throws {
        if x == "net" { print(HTTPClient.shared); print(try Certificate(pemEncoded: "x")) } else { print("hi") }
    }
}
A.main()
