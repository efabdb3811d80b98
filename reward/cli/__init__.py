"""The `capreward` command: its subcommands parse the command line, call the library and print."""
