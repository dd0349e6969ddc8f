# One image for every command: the service (`serve`), its certificates (`certs run`) and kubectl-mps. Build arguments
# VERSION, REVISION and CREATED only fill labels. Base images are named by tag here; a release pins their digests.
ARG PYTHON_IMAGE=python:3.13.9-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

# Dependencies first: they change less often than the code. Every file is checked against the lock, and nothing is built
# from source, so that no code of a package runs here.
COPY requirements/ requirements/
RUN python -m venv --without-pip /opt/mps-webhook \
 && pip --python /opt/mps-webhook/bin/python install --no-compile --only-binary :all: \
      --require-hashes -r requirements/runtime.lock

# The build backend, with the other development tools it is locked with, in an environment that stays behind.
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --only-binary :all: --require-hashes -r requirements/dev.lock

COPY pyproject.toml README.md LICENSE ./
COPY webhook/ webhook/
COPY certs/ certs/
# Byte code is compiled here, since the running container may not write it, and trusted without a look at the sources.
RUN /opt/build/bin/pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && pip --python /opt/mps-webhook/bin/python install --no-compile --no-index --no-deps /wheels/*.whl \
 && /opt/mps-webhook/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/mps-webhook/lib \
 && /opt/mps-webhook/bin/mps-webhook --help > /dev/null

FROM ${PYTHON_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="mps-webhook" \
      org.opencontainers.image.description="Admission webhook for pods on NVIDIA GPUs shared with MPS" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

# Nothing is installed into a running container.
RUN ["python", "-m", "pip", "uninstall", "--quiet", "--yes", "--root-user-action=ignore", "pip"]
COPY --from=build /opt/mps-webhook /opt/mps-webhook
COPY LICENSE /licenses/LICENSE

ENV PATH=/opt/mps-webhook/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that the kubelet can tell that it is not root (runAsNonRoot).
USER 65532:65532
WORKDIR /
EXPOSE 8443 8080
STOPSIGNAL SIGTERM
# No shell in between: the process gets the signals itself.
ENTRYPOINT ["/opt/mps-webhook/bin/mps-webhook"]
CMD ["serve"]
