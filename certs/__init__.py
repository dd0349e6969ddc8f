"""Certificates of a Kubernetes webhook: an authority of its own, a serving pair, and their rotation without a gap."""

from certs.pair import Pair, PairError, check_pair, load_pair, server_context

__all__ = ["Pair", "PairError", "check_pair", "load_pair", "server_context"]
