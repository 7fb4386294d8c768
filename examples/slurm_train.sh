#!/usr/bin/env bash
# Training on several machines with SLURM: one task for each machine, one process for each GPU.
#
#   sbatch --nodes=2 examples/slurm_train.sh scenes-pretrain -o /shared/runs/two
#
# All machines must see the run's folder. A job that SLURM puts back into the queue continues, and so
# does one that loses a process.
#SBATCH --job-name=gmaflow-train
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --requeue

set -euo pipefail
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"  # since SLURM 22.05 srun does not inherit it
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1  # without it, torch 2.13 cannot restart processes
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-1}" \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$head:${PORT:-29500}" \
    --max-restarts 3 -m gmaflow train "$@" --resume
