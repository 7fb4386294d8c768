"""What every layer asks of the machine: devices and precision, memory, kernels."""
