"""An engine of this machine with a storage of its own, and a registry with base images that hold a shell."""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import registry_server

from runbook_lib.compute.engine import Engine
from runbook_lib.practice.registry import image_of
from runbook_lib.practice.store import scripted

BUSYBOX = "/bin/busybox"
ENGINE: Engine = "buildah"
#: What the stand-in for Python answers: an image cannot hold a real PyTorch here.
ANSWER = {
    "found": {
        "Python": "3.12.3",
        "PyTorch": "2.12.0a0+0291f96.nv26.4",
        "CUDA": "13.2",
        "cuDNN": "9.20.0",
        "NCCL": "2.29.7",
        "Transformer Engine": "2.14.0",
    },
    "problems": {},
}


@dataclass(frozen=True)
class Place:
    """``env`` leads engines to their own storage, and to the registry for every image of nvcr.io."""

    folder: Path
    registry: str
    env: Mapping[str, str]

    def buildah(self, *arguments: str) -> str:
        done = subprocess.run(
            ["buildah", *arguments], env=self.env, capture_output=True, text=True, check=True, timeout=200
        )
        return done.stdout

    def builds(self, tag: str) -> list[psutil.Process]:
        """Return the processes that build an image of this tag in this storage, not in that of another test run."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                builds = process.name() == "buildah" and f"--tag={tag}" in process.cmdline()
                storage = process.environ().get("CONTAINERS_STORAGE_CONF") if builds else None
                if storage == self.env["CONTAINERS_STORAGE_CONF"] and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def publish(self, tag: str, env: Mapping[str, str], architecture: str = "amd64", index: bool = False) -> None:
        """Put an image with a shell and a stand-in for Python into the registry, with these variables in its config.

        ``index``: below a list of platforms, as NGC publishes them.
        """
        context = self.folder / "base"
        context.mkdir(exist_ok=True)
        shell = bytearray(Path(BUSYBOX).read_bytes())
        if architecture == "arm64":
            shell[18:20] = b"\xb7\x00"  # e_machine of ELF
        (context / "busybox").write_bytes(shell)
        (context / "busybox").chmod(0o755)
        said = f"runbook-smoke {json.dumps(ANSWER)}"
        (context / "python3").write_text(f"#!/bin/sh\necho 'Welcome to this image.'\necho '{said}'\n")
        (context / "python3").chmod(0o755)
        told = "".join(f'ENV {name}="{value}"\n' for name, value in env.items())
        (context / "Dockerfile").write_text(
            f"FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nCOPY python3 /usr/bin/python3\n{told}"
            'LABEL "org.opencontainers.image.ref.name"=ubuntu "org.opencontainers.image.version"=24.04\n'
            + ("RUN for it in cat echo mkdir sleep test dd id; do busybox ln -s /bin/busybox /bin/$it; done\n")
            * (architecture == "amd64")
        )
        named = f"localhost/base-{tag}"
        self.buildah(
            "build", "--format=docker", f"--arch={architecture}", f"--tag={named}", f"--file={context}/Dockerfile",
            str(context),
        )  # fmt: skip
        to = f"docker://{self.registry.removeprefix('http://')}/{registry_server.REPOSITORY}:{tag}"
        if index:
            self.buildah("manifest", "create", f"list-{tag}")
            self.buildah("manifest", "add", f"list-{tag}", named)
            self.buildah("manifest", "push", "--quiet", "--all", "--tls-verify=false", f"list-{tag}", to)
            self.buildah("manifest", "rm", f"list-{tag}")
        else:
            self.buildah("push", "--quiet", "--tls-verify=false", named, to)
        self.buildah("rmi", "--force", named)


def place(folder: Path, registry: str) -> Place:
    """Engines find their storage and registries by these files."""
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/storage"\nrunroot = "{folder}/run"\n'
    )
    (folder / "registries.conf").write_text(
        f'[[registry]]\nprefix = "nvcr.io"\nlocation = "{registry.removeprefix("http://")}"\ninsecure = true\n'
    )
    env = {
        **os.environ,
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
        "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        "BUILDAH_ISOLATION": "chroot",
        "TMPDIR": str(folder),
        "RUNBOOK_REGISTRY": registry,
        "REGISTRY_AUTH_FILE": str(folder / "auth.json"),
    }
    (folder / "auth.json").write_text("{}")
    return Place(folder, registry, env)


def claims(month: str) -> dict[str, str]:
    """The variables that the practice registry's image of a month names."""
    return dict(image_of(month, scripted("images")[month]).platforms["amd64"].env)


@contextlib.contextmanager
def debian_registry(folder: Path, auth: str = "") -> Iterator[str]:
    """The URL of Debian's docker-registry on a free port; those of one folder share their content."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = f"""version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}
http: {{addr: "127.0.0.1:{port}"}}
{auth}"""
    (folder / f"{port}.yml").write_text(config)
    process = subprocess.Popen(["docker-registry", "serve", str(folder / f"{port}.yml")], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        with httpx.Client(transport=httpx.HTTPTransport(retries=8)) as client:  # while it starts
            client.get(f"{url}/v2/")
        yield url
    finally:
        process.terminate()
        process.wait(60)
