"""`python -m hansard` is the command `hansard`."""

from hansard.cli import main

main(prog_name="hansard")
