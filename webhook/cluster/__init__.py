"""Where nodes, device-plugin configurations and namespaces come from.

``webhook.cluster.files`` reads files, ``webhook.cluster.live`` watches an API server. The latter is not imported here:
it brings the kubernetes client along, which takes a second to load and which files have no need of.
"""

from webhook.cluster.files import FileSource, read_configs, read_documents, read_namespaces, read_nodes
from webhook.cluster.source import InputError, Source, SourceStatus

__all__ = [
    "FileSource",
    "InputError",
    "Source",
    "SourceStatus",
    "read_configs",
    "read_documents",
    "read_namespaces",
    "read_nodes",
]
