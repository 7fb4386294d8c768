"""`gmaflow serve`: an HTTP API and a web page."""

import logging
from dataclasses import dataclass
from typing import Annotated

import tyro

from gmaflow.cli.options import parse
from gmaflow.errors import import_extra
from gmaflow.runtime.device_options import DeviceOptions
from gmaflow.serving import MIB, Limits, work_pixels_of

DEFAULTS = Limits()


@dataclass(frozen=True, kw_only=True)
class ServeOptions(DeviceOptions):
    """Serve optical flow over HTTP, with a web page.

    Open the printed URL in a browser; /docs describes the API. By default the server is reachable
    only from this machine. It has no accounts: with --host 0.0.0.0 everyone in the network can use
    it.

    Examples:
      gmaflow serve
      gmaflow serve --port 8080 --no-open --weights gma-sintel.pth
      gmaflow serve --host 0.0.0.0 --allow-name flow.lab.example --max-upload 16
    """

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for all interfaces."""
    port: int = 8000
    """Port to listen on; 0 for any free port."""
    no_open: bool = False
    """Do not open the page in a browser."""
    weights: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")
    ] = ()
    """Weights to offer in addition to the shipped ones, as files or folders of training runs; the
    first is the default."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The default model; with --weights, the model that the files hold."""
    allow_name: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """Host name of the server, in addition to localhost and IP addresses."""
    max_upload: float = DEFAULTS.upload_bytes / MIB
    """Largest request in MiB."""
    max_pixels: int = DEFAULTS.pixels
    """Largest image in pixels."""
    work_pixels: int | None = None
    """Scale larger images down to this many pixels. Default: 450,000, on a GPU 2,200,000."""
    max_clip_seconds: float = DEFAULTS.clip_seconds
    """Use only the first seconds of a clip."""
    max_clip_frames: int = DEFAULTS.clip_frames
    """Use only the first frames of a clip."""
    queue: int = DEFAULTS.queue
    """Unfinished jobs per client; four times as many for all clients together."""
    job_seconds: float = DEFAULTS.job_seconds
    """Time limit in seconds for one pair with one model."""
    keep_minutes: float = DEFAULTS.keep_minutes
    """Delete results that were not requested for this many minutes."""
    keep_results: int = DEFAULTS.keep_results
    """Number of finished jobs to keep."""
    keep_disk: float = DEFAULTS.keep_bytes / 2**30
    """Disk space for all jobs in GiB."""
    verbose: bool = False
    """Log every request."""

    def limits(self, device: str) -> Limits:
        return Limits(
            upload_bytes=round(self.max_upload * MIB),
            pixels=self.max_pixels,
            work_pixels=self.work_pixels or work_pixels_of(device),
            clip_seconds=self.max_clip_seconds,
            clip_frames=self.max_clip_frames,
            queue=self.queue,
            job_seconds=self.job_seconds,
            keep_minutes=self.keep_minutes,
            keep_results=self.keep_results,
            keep_bytes=round(self.keep_disk * 1024 * MIB),
        )


def main(args: list[str]) -> None:
    options = parse(ServeOptions, args, verb="serve")
    for package in ("fastapi", "python_multipart", "uvicorn"):
        import_extra(package, "gmaflow serve", extra="serve")
    if options.verbose:
        logging.getLogger().setLevel(logging.INFO)
    else:
        # Mistakes of clients are answered over HTTP; they would only fill the log.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    from gmaflow.serving.server import FlowServer, bind

    # Bound before the weights are read, so that a port in use is reported at once.
    with bind(options.host, options.port) as listener:
        from gmaflow.serving.models import ModelRegistry

        models = ModelRegistry(options.weights, model=options.model, options=options)
        FlowServer(
            listener,
            models,
            options.limits(models.device.type),
            names=(options.host, *options.allow_name),
            ready=lambda url: welcome(url, not options.no_open),
        ).run()


def welcome(url: str, opens: bool) -> None:
    print(f"gmaflow serves at {url} (Ctrl-C stops it)", flush=True)
    if opens:
        import webbrowser

        webbrowser.open(url)
