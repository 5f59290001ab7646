#!/usr/bin/env python3
"""image.py BINARY AUTHORITIES VERSION OUTPUT: writes an image from scratch.

The file is an OCI image layout, and has the manifest of `docker save` as well, so every version of
docker, podman, buildah and skopeo reads it. It takes no daemon, no privileges and no network, and
the same inputs give the same bytes.
"""

import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import datetime, timezone

# Not root, and none of the system's users.
USER = 65532
CONFIG = "/etc/fluxgate/fluxgate.yaml"
NAME = "fluxgate"


def add(tar, name, content=None, mode=0o644, epoch=0):
    """Adds a file, or a directory without content."""
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = epoch, mode
    if content is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))


def layer(binary, authorities, epoch):
    """Returns the only layer: the binary, the authorities that it trusts, and its user."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ["etc", "etc/fluxgate", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin"]:
            add(tar, folder, mode=0o755, epoch=epoch)
        passwd = f"{NAME}:x:{USER}:{USER}::/:/usr/local/bin/fluxgate\n"
        add(tar, "etc/passwd", passwd.encode(), epoch=epoch)
        add(tar, "etc/group", f"{NAME}:x:{USER}:\n".encode(), epoch=epoch)
        add(tar, "etc/ssl/certs/ca-certificates.crt", authorities, epoch=epoch)
        add(tar, "usr/local/bin/fluxgate", binary, 0o755, epoch)
    return out.getvalue()


def image_config(layer_digest, version, created):
    seconds = 10**9
    health = ["CMD", "/usr/local/bin/fluxgate", "health", "--config", CONFIG]
    return {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": f"{USER}:{USER}",
            # gateway, API and metrics, gRPC, RESP
            "ExposedPorts": {f"{port}/tcp": {} for port in [8080, 8081, 8082, 8083]},
            "Entrypoint": ["/usr/local/bin/fluxgate"],
            "Cmd": ["run", "--config", CONFIG],
            "StopSignal": "SIGTERM",
            # An addition of Docker's to the format, which others ignore.
            "Healthcheck": {
                "Test": health,
                "Interval": 10 * seconds,
                "Timeout": 5 * seconds,
                "StartPeriod": 10 * seconds,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": [layer_digest]},
        "history": [{"created": created, "created_by": "scripts/package"}],
    }


def main():
    binary, authorities, version, output = sys.argv[1:]
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    created = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with open(binary, "rb") as file, open(authorities, "rb") as roots:
        blobs = {}

        def blob(content, media_type):
            if not isinstance(content, bytes):
                content = json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
            digest = hashlib.sha256(content).hexdigest()
            blobs[f"blobs/sha256/{digest}"] = content
            return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

        oci = "application/vnd.oci.image."
        layers = blob(layer(file.read(), roots.read(), epoch), f"{oci}layer.v1.tar")
    config = blob(image_config(layers["digest"], version, created), f"{oci}config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}manifest.v1+json",
        "config": config,
        "layers": [layers],
    }
    manifest = blob(manifest, f"{oci}manifest.v1+json")
    manifest["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{NAME}:{version}",
        "org.opencontainers.image.ref.name": version,
    }
    manifest["platform"] = {"architecture": "amd64", "os": "linux"}
    config, layers = ["blobs/" + it["digest"].replace(":", "/") for it in [config, layers]]
    saved = [{"Config": config, "RepoTags": [f"{NAME}:{version}"], "Layers": [layers]}]
    texts = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "mediaType": f"{oci}index.v1+json", "manifests": [manifest]},
        "manifest.json": saved,
    }
    with tarfile.open(output, "w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in ["blobs", "blobs/sha256"]:
            add(tar, folder, mode=0o755, epoch=epoch)
        for name, content in sorted(blobs.items()):
            add(tar, name, content, epoch=epoch)
        for name, value in texts.items():
            add(tar, name, json.dumps(value, sort_keys=True).encode(), epoch=epoch)


if __name__ == "__main__":
    main()
