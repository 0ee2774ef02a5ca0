"""The command line: `swift-loader ...`. Each command imports what it needs when it is the one called."""
