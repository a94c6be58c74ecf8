/// Why a request is refused: the step, its response code, and the reason for the log of the signer.
package struct RequestRefusal: Error, Equatable {
    package let step: Int
    package let code: ResponseCode
    /// A clause, without data of the request.
    package let reason: String
}
