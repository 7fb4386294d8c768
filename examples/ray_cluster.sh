#!/usr/bin/env bash
# Flow for a data set on Ray. On the first machine:
#
#   examples/ray_cluster.sh head
#
# On every other machine, with the address that the first one prints:
#
#   examples/ray_cluster.sh join 10.0.0.1:6379
#
# Then, on any of them, while machines come and go:
#
#   examples/ray_cluster.sh run videos.csv s3://bucket/flow --format tar
#
# Every machine needs gmaflow[ray,remote]; weights are sent by the driver. Clusters with a token, and
# two nodes on one machine, need RAY_AUTH_MODE=token and the same RAY_AUTH_TOKEN everywhere.
set -euo pipefail

case "${1:?head, join ADDRESS, or run INPUTS DEST}" in
    head) exec ray start --head --port "${RAY_PORT:-6379}" --include-dashboard false ;;
    join) exec ray start --address "$2" ;;
    run)
        inputs="$2" output="$3"
        shift 3
        exec gmaflow batch "$inputs" -o "$output" --engine ray --address auto "$@"
        ;;
    *) echo "give head, join ADDRESS, or run INPUTS DEST" >&2 && exit 2 ;;
esac
