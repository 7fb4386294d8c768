"""The command line: a module for each verb, imported when it is called.

`app` finds the verb. Shared by the verbs: `options` (options, how they are read, progress bars),
`outputs` (what is written for a pair) and `pipeline` (from frames to outputs).
"""

from gmaflow.cli.app import main

__all__ = ["main"]
