import CertificateProviding

@testable import SplitKeySigning

// Makes ten signatures with a key whose numbers are fixed, and the PIN of the argument. `valgrind --tool=callgrind` counts OpenSSL's
// instructions:
//
//     valgrind --tool=callgrind --toggle-collect=EC_POINT_mul .build/debug/SignatureInstructions 1234
let pin = try PIN(SecretBytes(utf8: CommandLine.arguments.dropFirst().first ?? "1234"))
let group = try G1Group.bls12381.get()
let token = try group.generator().times(try SecretScalar([7])).bytes()
let key = try SplitKey(
    authority: "https://authority.example",
    identity: MPinID(Array(#"{"userID":"alice@example.com","scope":["dvs-auth"]}"#.utf8)),
    publicKey: Array(repeating: 7, count: SplitKey.publicKeySize), dtas: "W10=", token: SecretBytes(copying: token),
    pinLength: pin.length)
for time in 1...10 { _ = try key.sign(Array(repeating: 1, count: 32), at: UInt32(time), with: pin) }
