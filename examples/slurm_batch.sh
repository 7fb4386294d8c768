#!/usr/bin/env bash
# Flow for a data set on SLURM: an array job, one shard of the list for each task.
#
#   sbatch --array=1-8 examples/slurm_batch.sh videos.csv /shared/flow --format h5
#
# Tasks may run at the same time or one after the other, fail, and be submitted again: finished
# clips are recognised at the destination. A last run without --shard joins the tables of the shards.
#SBATCH --job-name=gmaflow
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=32G
#SBATCH --time=12:00:00
#SBATCH --signal=INT@60
#SBATCH --output=gmaflow-%A_%a.log
set -euo pipefail

inputs="$1" output="$2"
shift 2
# exec: the signal a minute before the time is up reaches gmaflow, which then ends cleanly.
exec gmaflow batch "$inputs" -o "$output" \
    --shard "${SLURM_ARRAY_TASK_ID:?submit it with --array=1-N}/${SLURM_ARRAY_TASK_COUNT}" "$@"
