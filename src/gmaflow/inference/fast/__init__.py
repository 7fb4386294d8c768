"""The fast back end: the same flow as `FlowNetwork`, for inference only.

- `fast_network`: the network, made of `operations` (plain torch) or `triton_operations` (a GPU).
- `recorded_network`: the same, replayed from CUDA graphs.
- `convolution`: convolutions with folded norms, and Winograd's algorithm.
- `map_kernels`: Triton kernels.
"""

from gmaflow.inference.fast.fast_network import FastNetwork
from gmaflow.inference.fast.recorded_network import RecordedNetwork

__all__ = ["FastNetwork", "RecordedNetwork"]
