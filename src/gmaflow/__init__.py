"""gmaflow."""
