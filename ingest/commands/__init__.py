"""What the commands of the CLI do, one module each."""
