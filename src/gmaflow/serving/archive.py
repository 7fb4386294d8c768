"""Everything a job found out, in one zip file."""

import zipfile
from pathlib import Path

from gmaflow.io import atomic_write, encode_png
from gmaflow.serving.jobs import Job
from gmaflow.serving.views import PICTURES, Look, flow_file

OF_PAIRS = ("frame1", "frame2", "flow", "arrows", "warped", "occlusion", "confidence", "panel")
OF_CLIPS = ("flow",)
"""Pictures that are put in; of clips fewer, since they have many pairs."""


def archive(job: Job) -> Path:
    """Return the zip file of a job that is done, which is written when it is first asked for."""
    path = job.footage.folder.path / "all.zip"
    if path.exists():
        return path
    pictures = OF_CLIPS if job.footage.kind == "clip" else OF_PAIRS
    # Pictures and packed numbers do not shrink any more, the plain .flo does.
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as bundle:
        for task in sorted(job.done, key=lambda task: (task.model, task.pair)):
            look = Look(job, task)
            stem = f"{job.wish.models[task.model]}/{task.pair:04d}"
            bundle.write(flow_file(look, "flow.flo"), f"{stem}-flow.flo", zipfile.ZIP_DEFLATED)
            for name in pictures:
                bundle.writestr(f"{stem}-{name}.png", encode_png(PICTURES[name](look)))
    return path
