"""The server behind `gmaflow serve`: an HTTP API, and a page to look at flow with.

running   sockets, uvicorn, signals
app       the application: security, bodies, routes/
uploads   bytes -> frames
workshop  the queue, the worker and the results that are kept
views     results -> pictures and files
"""

from gmaflow.serving.limits import MIB, Limits, work_pixels_of

__all__ = ["MIB", "Limits", "work_pixels_of"]
