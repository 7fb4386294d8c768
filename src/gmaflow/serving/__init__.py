"""The server behind `gmaflow serve`: an HTTP API and a web page.

server      the application, uvicorn, timeouts, signals
middleware  cross-site protection, upload limits, HEAD
routes      the addresses of the API; dependencies.py and api_docs.py support them
uploads     uploaded bytes -> frames
job_queue   the queue, the worker thread, and how long results are kept
views       results -> pictures and files
"""

from gmaflow.serving.limits import MIB, Limits, work_pixels_of

__all__ = ["MIB", "Limits", "work_pixels_of"]
