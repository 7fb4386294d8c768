"""The command line: a module for each verb, imported when it is called.

`app` finds the verb. Shared by the verbs: `options` (options and how they are read), `outputs`
(what is written for a pair), `result_folder` (folders that can be resumed), `scale` (colours of a
whole folder or video) and `progress` (bars).
"""

from gmaflow.cli.app import main

__all__ = ["main"]
