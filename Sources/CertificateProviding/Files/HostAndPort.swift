/// A server's address as people read and write it: an IPv6 address in brackets, and nothing that steers a terminal.
package func hostAndPort(_ host: String, _ port: some BinaryInteger) -> String {
    let name = host.withVisibleControls
    return host.contains(":") ? "[\(name)]:\(port)" : "\(name):\(port)"
}
