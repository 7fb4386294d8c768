"""The fast back end: the same flow as `FlowNetwork`, for inference alone."""

from gmaflow.inference.fast.network import FastNetwork

__all__ = ["FastNetwork"]
