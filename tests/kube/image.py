#!/usr/bin/env python3
"""Makes a one-layer OCI archive of a folder, without an engine: image.py OUT.tar NAME:TAG FOLDER [ENV=K=V]... COMMAND..."""
import hashlib
import io
import json
import os
import platform
import sys
import tarfile

OCI = "application/vnd.oci.image."
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def plain(entry):
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    return entry


def layer_of(folder):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted(os.listdir(folder)):
            archive.add(os.path.join(folder, name), name, filter=plain)
    return packed.getvalue()


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def described(kind, data, **more):
    return {"mediaType": OCI + kind, "digest": digest(data), "size": len(data), **more}


def encoded(value):
    return json.dumps(value, sort_keys=True).encode()


def main(out, name, folder, *command):
    command = list(command)
    env = ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]
    while command and command[0].startswith("ENV="):
        env.append(command.pop(0)[4:])
    layer = layer_of(folder)
    config = encoded({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux",
        "created": "1970-01-01T00:00:00Z", "config": {"Cmd": command, "Env": env},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}, "history": [{"created_by": "image.py"}]})
    manifest = encoded({
        "schemaVersion": 2, "mediaType": OCI + "manifest.v1+json",
        "config": described("config.v1+json", config), "layers": [described("layer.v1.tar", layer)]})
    # containerd imports an image without this annotation under no usable name.
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[-1]}
    index = encoded({"schemaVersion": 2, "manifests": [described("manifest.v1+json", manifest, annotations=names)]})
    files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index}
    for data in (config, manifest, layer):
        files["blobs/sha256/" + digest(data)[7:]] = data
    with tarfile.open(out, "w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
