"""mps-webhook: admission control for pods on NVIDIA GPUs that are shared with MPS."""

__version__ = "0.1.0"
