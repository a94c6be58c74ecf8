// What needs no more than SwiftNIO. Apart from this room only so that a program which starts often need not carry
// AsyncHTTPClient, and with it HTTP/2 and all of Foundation.
@_exported public import CertificateTLSCore
