"""The user's side: configuration, run folders, the command line and its Python twin. Kept empty so that `--help` is instant."""
