"""Groups of subcommands, one module each; `cli` puts them together. What a command needs is imported inside it."""
