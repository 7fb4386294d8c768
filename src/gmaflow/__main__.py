"""`python -m gmaflow` is `gmaflow`."""

from gmaflow.cli import main

main()
