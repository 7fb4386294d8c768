"""What every layer asks of the machine.

- `device`: devices, precision, and whether Triton kernels can run.
- `memory`: how much memory is free, and what to say when it runs out.
- `cuda_graphs`: recording GPU work once and replaying it.
"""
