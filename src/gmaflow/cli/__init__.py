"""The command line: one small file for each verb, loaded when it is called."""

from gmaflow.cli.app import main

__all__ = ["main"]
