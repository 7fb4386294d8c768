"""`gmaflow serve`: an HTTP API and a page, for this machine or a network."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from gmaflow.cli.options import parse
from gmaflow.errors import FlowError

if TYPE_CHECKING:
    from gmaflow.serving import Limits


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Serve optical flow over HTTP, with a page to look at it.

    Open the address it prints; programs find what they can ask at /docs. It listens to this machine
    alone unless --host says otherwise: there are no accounts, so whoever reaches it may use it.

    Examples:
      gmaflow serve
      gmaflow serve --port 8080 --no-open --weights gma-sintel.pth
      gmaflow serve --host 0.0.0.0 --allow-name flow.lab.example --max-upload 16
    """

    host: str = "127.0.0.1"
    """The address to listen to; 0.0.0.0 for everybody."""
    port: int = 8000
    """The port; 0 for any that is free."""
    no_open: bool = False
    """Do not open the page in a browser."""
    weights: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="FILE")
    ] = ()
    """Weights to offer besides the shipped ones, the first as default; may be repeated."""
    model: Annotated[str | None, tyro.conf.arg(metavar="NAME")] = None
    """The model that is used where none is named; with --weights, what the files hold."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 or mps."""
    precision: str = "auto"
    """auto, fp32, fp16 or bf16."""
    backend: str = "auto"
    """auto, fast, or reference: the network as it is written."""
    max_memory: Annotated[str | None, tyro.conf.arg(metavar="1.5GB")] = None
    """Keep to so much memory for a pair, in tiles if it must be; by default to what is free."""
    allow_name: Annotated[
        tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME")
    ] = ()
    """A name by which the server may be called; addresses and localhost always may."""
    max_upload: float = 64.0
    """MiB of one request."""
    max_pixels: int = 34_000_000
    """Pixels of an image; larger ones are refused."""
    work_pixels: int | None = None
    """Larger images are scaled down to so many pixels; by default 450,000, on a GPU 2,200,000."""
    max_clip_seconds: float = 10.0
    """Of a clip, the first so many seconds are used."""
    max_clip_frames: int = 121
    """Of a clip, the first so many frames are used."""
    queue: int = 16
    """Unfinished jobs that one client may have; all together, four times as many."""
    job_seconds: float = 120.0
    """Seconds that one pair may take with one model."""
    keep_minutes: float = 30.0
    """Results that nobody looked at for so long are deleted."""
    keep_results: int = 32
    """Finished jobs that are kept at most."""
    keep_disk: float = 8.0
    """GiB of disk that all jobs together may take."""
    verbose: bool = False
    """Log every request."""

    def limits(self, device: str) -> "Limits":
        """Return what may be asked of the server on such a device."""
        from gmaflow.serving import MIB, Limits, work_pixels_of

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
    """Run the verb."""
    options = parse(ServeOptions, args, verb="serve")
    try:
        import fastapi  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as err:
        raise FlowError(
            f"the server needs {err.name}, which is not installed: pip install 'gmaflow[serve]'"
        ) from err
    if options.verbose:
        logging.getLogger().setLevel(logging.INFO)
    else:
        # What clients do wrong is told to them; here it would only fill the log.
        logging.getLogger("python_multipart").setLevel(logging.ERROR)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    # Bound before the weights are read: a port that is taken is told at once.
    from gmaflow.serving.running import bind, serve

    with bind(options.host, options.port) as listener:
        from gmaflow.inference import as_backend, as_precision
        from gmaflow.serving.shelf import ModelShelf

        shelf = ModelShelf(
            options.weights,
            model=options.model,
            device=options.device,
            precision=as_precision(options.precision),
            backend=as_backend(options.backend),
            max_memory=options.max_memory,
        )
        limits = options.limits(shelf.device.type)
        names = (options.host, *options.allow_name)
        serve(
            listener,
            shelf,
            limits,
            names=names,
            ready=lambda url: welcome(url, not options.no_open),
        )


def welcome(url: str, opens: bool) -> None:
    """Tell a person where the server is, and show it."""
    print(f"gmaflow serves at {url} (Ctrl-C stops it)", flush=True)
    if opens:
        import webbrowser

        webbrowser.open(url)
