"""Devices, memory and GPU launches, for every layer above.

- `device`: where to compute, in which precision, and with how much memory.
- `device_options`: the options of commands that choose it.
- `cuda_graphs`: recording GPU work once and replaying it.
"""
