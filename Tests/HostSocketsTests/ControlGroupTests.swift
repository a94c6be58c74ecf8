import Testing

@testable import HostSockets

@Suite struct ControlGroupTests {
    private static func place(_ text: String) -> Result<ControlGroup, ControlGroup.Obstacle> {
        Result { () throws(ControlGroup.Obstacle) in try ControlGroup(Array(text.utf8)) }
    }

    @Test(
        "The unit is the first one below the slices, of the line of version 2 or the service manager's own",
        arguments: [
            ("0::/system.slice/nginx.service\n", "nginx.service"),
            ("9:name=systemd:/other.service\n0::/system.slice/nginx.service\n", "nginx.service"),
            ("9:name=systemd:/system.slice/cron.service\n1:cpu:/x\n", "cron.service"),
            ("0::/a.slice/a-b.slice/b.scope/nginx.service/x\n", "b.scope"),
            ("0::/user.slice/user-1.slice/user@1.service/app.slice/nginx.service\n", "user@1.service"),
            ("0::/init.scope\n", "init.scope"), ("0::/system.slice/a:b.service\n", "a:b.service"),
            ("0::/system.slice/\u{301}nginx.service/nginx.service\n", "\u{301}nginx.service"),
        ])
    func units(text: String, unit: String) throws { #expect(try Self.place(text).get().unit == unit) }

    @Test(
        "A path that says nothing for sure is of no unit",
        arguments: [
            "", "0::/\n", "0::/../system.slice/nginx.service\n", "0::/system.slice/nginx.service (deleted)\n",
            "0::/docker/nginx.service\n", "0::/system.slice\n", "0::/system.slice/.service\n", "1:cpu:/nginx.service\n",
        ])
    func noUnit(text: String) { #expect(throws: ControlGroup.Obstacle.self) { try Self.place(text).get() } }

    @Test("A control group is within itself and its ancestors, by whole names and bytes")
    func within() throws {
        let group = try Self.place("0::/system.slice/a.service/b\n").get()
        for path in ["/system.slice", "/system.slice/a.service", "/system.slice/a.service/b"] {
            #expect(group.isWithin(path))
        }
        for path in ["/system.slic", "/system.slice/a.service/b/c", "/system.slice/a", ""] where !path.isEmpty {
            #expect(!group.isWithin(path))
        }
        let kelvin = try Self.place("0::/\u{212a}.slice/a.service\n").get()
        #expect(!kelvin.isWithin("/K.slice"))
    }
}
