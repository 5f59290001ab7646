#!/usr/bin/env python3
"""sbom.py VERSION TARGET OUTPUT: writes the crates of the binary as CycloneDX 1.5.

They are those that cargo links for this target, with the features that packages have: neither those
of tests nor those of other systems.
"""

import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone

ROOT = "fluxgate"


def main():
    version, target, output = sys.argv[1:]
    needed = linked(target)
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features"]
    metadata = json.loads(output_of(command + ["--filter-platform", target]))
    packages = {(it["name"], it["version"]): it for it in metadata["packages"]}
    with open("Cargo.lock", "rb") as file:
        locked = {(it["name"], it["version"]): it for it in tomllib.load(file)["package"]}
    root = (ROOT, version)
    crates = sorted(needed, key=reference)
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": component(packages[root], locked[root], "application"),
        },
        "components": [component(packages[it], locked[it], "library") for it in crates if it != root],
        "dependencies": [
            {"ref": reference(it), "dependsOn": sorted(map(reference, needed[it]))} for it in crates
        ],
    }
    # The same content has the same number.
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    with open(output, "w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")


def reference(crate):
    name, version = crate
    return f"pkg:cargo/{name}@{version}"


def component(package, locked, kind):
    purl = reference((package["name"], package["version"]))
    described = {
        "type": kind,
        "bom-ref": purl,
        "name": package["name"],
        "version": package["version"],
        "purl": purl,
    }
    if package["license"]:
        # Some crates still write `MIT/Apache-2.0`.
        expression = " OR ".join(part.strip() for part in package["license"].split("/"))
        described["licenses"] = [{"expression": expression}]
    if "checksum" in locked:
        described["hashes"] = [{"alg": "SHA-256", "content": locked["checksum"]}]
    if package["repository"]:
        described["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return described


def linked(target):
    """Returns the crates that become part of the binary, each with those it needs itself.

    `cargo metadata` would name those that only tests need, too: it unites the features of all. Macros
    are left out, because they run while it is built.
    """
    command = ["cargo", "tree", "--locked", "--package", ROOT, "--features", "mongodb", "--target", target]
    command += ["--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", " {p}"]
    needed, path = {}, []
    for line in output_of(command).splitlines():
        depth, name, version = line.split()[:3]
        crate = (name, version.removeprefix("v"))
        # What was printed before ends with a star and is not repeated.
        needed.setdefault(crate, [])
        del path[int(depth) :]
        if path and crate not in needed[path[-1]]:
            needed[path[-1]].append(crate)
        path.append(crate)
    return needed


def output_of(command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
