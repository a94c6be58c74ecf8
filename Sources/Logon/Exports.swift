// The manager, and what a configuration says. Apart from this room only so that a program which starts often need not
// carry swift-configuration, and with it all of Foundation.
@_exported public import LogonCore
