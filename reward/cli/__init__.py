"""The `capreward` command: one small file a subcommand; they parse, call the library and print."""
