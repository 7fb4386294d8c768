"""The command line: one small file for each verb, loaded when it is called."""

from gmaflow.cli.main import main

__all__ = ["main"]
