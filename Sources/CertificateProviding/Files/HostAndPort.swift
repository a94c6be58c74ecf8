/// Returns `host:port` for display, with an IPv6 address in brackets and control characters escaped.
package func hostAndPort(_ host: String, _ port: some BinaryInteger) -> String {
    let name = host.withVisibleControls
    return host.contains(":") ? "[\(name)]:\(port)" : "\(name):\(port)"
}
