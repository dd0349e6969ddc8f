"""The HTTPS service: AdmissionReviews in, decisions or faults out, and what a process around that needs."""

from webhook.server.app import create_app
from webhook.server.listener import ListenError
from webhook.server.service import Service

__all__ = ["ListenError", "Service", "create_app"]
