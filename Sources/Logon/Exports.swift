// The manager, and what a configuration says. Apart from this room only so that a program which starts often, and reads
// its settings from a Java properties file, need not carry swift-configuration and Foundation for that.
@_exported public import LogonCore
