from __future__ import annotations

from typing import Any

import pytest

from webhook.server.tls import peer_names

SUBJECT = ((("organizationName", "system:masters"),), (("commonName", "kube-apiserver"),))


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        (None, set()),
        ({}, set()),
        ({"subject": SUBJECT}, {"kube-apiserver"}),
        ({"subjectAltName": (("DNS", "a.example"), ("IP Address", "10.0.0.1"), ("email", "a@b"))}, {"a.example"}),
        ({"subject": SUBJECT, "subjectAltName": (("DNS", "b"),)}, {"kube-apiserver", "b"}),
    ],
)
def test_names_of_a_client(certificate: Any, names: set[str]) -> None:
    assert peer_names(certificate) == names
