"""Certificates for a Kubernetes webhook, and their rotation without a single failed call.

Make an authority and a pair for a test or a trial, in memory:

    from certs import self_signed, server_context

    issued = self_signed(["localhost", "127.0.0.1"])
    context = server_context(issued.pair)               # ssl.SSLContext for the server
    client.load_verify_locations(cadata=issued.pair.authorities.decode())

Read the pair that a Secret volume or a person has put into a directory; what comes back has been checked as a whole:

    from certs import PairError, load_pair

    try:
        pair = load_pair("/etc/webhook/tls", names=["my-webhook.my-namespace.svc"])
    except PairError as error:
        print(error)                                    # /etc/webhook/tls: tls.key is not the key of tls.crt

Sign with an authority of your own:

    from certs import Authority, service_names

    authority = Authority.new("my-webhook", lifetime=timedelta(days=365), now=datetime.now(UTC))
    pair = authority.issue(service_names("my-webhook", "my-namespace"), lifetime=timedelta(days=90), now=...)

Keep a Secret and the caBundle of webhook configurations in order for good: `certs.rotation` decides (pure functions,
start reading there), `certs.state` is what the Secret holds, `certs.controller` carries out, `certs.loop` goes round.
These are imported by name, because their client of the API server takes a second to load.

Everything is ECDSA P-256, valid from one hour ago, with random serial numbers; keys are unencrypted PKCS #8 PEM, and
no `repr`, message or log line of this package contains one.
"""

from certs.authority import Authority, bundle_pem, service_names
from certs.issue import Issued, IssueError, self_signed, write_files
from certs.pair import Pair, PairError, check_pair, load_pair, server_context

__all__ = [
    "Authority",
    "IssueError",
    "Issued",
    "Pair",
    "PairError",
    "bundle_pem",
    "check_pair",
    "load_pair",
    "self_signed",
    "server_context",
    "service_names",
    "write_files",
]
