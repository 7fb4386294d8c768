"""Flow for a data set from Python, as a job on a Ray cluster.

    ray job submit -- python ray_job.py videos.csv s3://bucket/flow

It also runs without a cluster: Ray then starts on this machine.
"""

import sys

from gmaflow.batch import BatchConfig, BatchProgress, run_batch


def watch(progress: BatchProgress) -> None:
    """Print a line for each clip."""
    result = progress.last
    if result is not None:
        state = result.error or f"{result.pairs} pairs in {result.seconds:.1f} s"
        print(f"{result.clip.identifier}: {state} on {result.node}; {progress.left} left")


def main() -> None:
    """Do all clips of the inputs that are not at the destination yet."""
    if len(sys.argv) < 3:
        sys.exit("usage: ray_job.py INPUT... OUTPUT")
    *inputs, output = sys.argv[1:]
    config = BatchConfig(write="flow,statistics", side=256, engine="ray")
    progress = run_batch(config, inputs, output, watch=watch)
    print(progress.report())
    sys.exit(1 if progress.failed or progress.failed_before else 0)


if __name__ == "__main__":
    main()
