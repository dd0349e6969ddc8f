"""The commands: ``mps-webhook`` for the cluster, ``kubectl-mps`` for the people who use it."""
