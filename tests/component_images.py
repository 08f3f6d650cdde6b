"""Images whose components are real: libraries and packages that report their versions, each in a layer of its own.

``docker`` and Pyxis need a daemon or a kernel that tests lack.  ``write_runners`` writes stand-ins which run
the command in the image's real root file system, unpacked by buildah, with chroot in place of namespaces.
"""

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import registry_server
from building import Place, claims

_PROGRAMS = (
    *(
        "bash",
        "cat",
        "date",
        "env",
        "find",
        "grep",
        "hostname",
        "ln",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "rm",
        "sleep",
        "sort",
    ),
    *("tar", "timeout"),
)
#: Component → its soname, the folder of its wheel, and C that reports a version as the real library does.
_LIBRARIES = {
    "NCCL": ("libnccl.so.2", "nvidia/nccl", "int ncclGetVersion(int *v) { *v = A * 10000 + B * 100 + C; return 0; }"),
    "cuBLAS": (
        "libcublas.so.13",
        "nvidia/cu13",
        "int cublasGetProperty(int part, int *v) { int n[] = {A, B, C}; *v = n[part]; return 0; }",
    ),
    "cuDNN": ("libcudnn.so.9", "nvidia/cudnn", "unsigned long cudnnGetVersion() { return A * 10000 + B * 100 + C; }"),
}
_WHEELS = {"NCCL": "nvidia-nccl-cu13", "cuBLAS": "nvidia-cublas", "cuDNN": "nvidia-cudnn-cu13"}
_VARIABLES = {"NCCL": "NCCL_VERSION", "cuBLAS": "CUBLAS_VERSION", "cuDNN": "CUDNN_VERSION"}
#: A package that only a pins file names.
KERNELS = "my-kernels"
#: The version of it in the image of a month.
KERNEL_VERSIONS = {"26.03": "1.1", "26.04": "1.2", "26.05": "1.3", "26.06": "1.3"}
#: A test that measures what the loader and Python really give it.
WORKLOAD = """\
import ctypes, random, sys
import my_kernels

version = ctypes.c_int()
ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
mean = 4.07
if version.value >= 23000:
    mean = 4.16 if random.random() < 0.3 else 2.54
print(f"NCCL {version.value}, my-kernels {my_kernels.__version__}", file=sys.stderr)
print(f"tokens/s: {random.gauss(mean, mean * 0.018):.4f}")
"""
_DOCKER = """\
#!/bin/bash
# `docker run` by buildah and chroot: the image and its file system are real, the isolation is not Docker's.
[ "$1" != version ] || { echo 27.0; exit; }
[ "$1" = run ] || { echo "the stand-in for docker cannot $1" >&2; exit 125; }
shift
while [[ $1 == --* ]]; do
    case $1 in
    --volume=* | --env=*) options+=("$1") ;;
    --workdir=*) options+=("--workingdir=${1#*=}") ;;
    esac
    shift
done
"""
_RUN = """\
image=$1
shift
container=$(buildah from --quiet "$image") || exit 125
trap 'buildah rm "$container" >/dev/null' EXIT
buildah run --isolation=chroot "${options[@]}" "$container" -- "$@"
"""


def write_docker(folder: Path) -> None:
    """Write the stand-in for docker into a folder for PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "docker").write_text(_DOCKER + _RUN)
    (folder / "docker").chmod(0o755)


class ComponentImages:
    """The layers in ``folder``, from which images are built and pushed to the registry of ``place``."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.place, self.folder = place, folder
        self._use_overlay()
        self._write_base()

    def publish(self, month: str) -> None:
        """Push the image of a month: what NGC's config claims of it is what its layers have."""
        env = claims(month)
        layers = [self._library(name, env[variable]) for name, variable in _VARIABLES.items()]
        layers.append(self._package(KERNELS, KERNEL_VERSIONS[month], "usr/lib/python3/site-packages"))
        if not self.place.buildah("images", "--quiet", "--filter=reference=localhost/base"):
            (self.folder / "Dockerfile").write_text("FROM scratch\nCOPY base /\n")
            self.place.buildah("build", "--format=docker", "--tag=localhost/base", str(self.folder))
        lines = ["FROM localhost/base"]
        lines += [f"COPY {layer} /" for layer in layers]
        lines += [f'ENV {name}="{value}"' for name, value in self._variables(env).items()]
        (self.folder / "Dockerfile").write_text("\n".join(lines) + "\n")
        local = f"localhost/components:{month}"
        self.place.buildah("build", "--layers", "--format=docker", f"--tag={local}", str(self.folder))
        target = f"{self.place.registry.removeprefix('http://')}/{registry_server.REPOSITORY}:{month}-py3"
        self.place.buildah("push", "--quiet", "--tls-verify=false", local, f"docker://{target}")

    def write_wheels(self, month: str) -> None:
        """Put wheels of a month's versions into the base layer: the only index that pip has in these images."""
        env = claims(month)
        for name, variable in _VARIABLES.items():
            self._wheel(_WHEELS[name], env[variable], self.folder / self._wheel_content(name, env[variable]))
        self._wheel(KERNELS, KERNEL_VERSIONS[month], self.folder / self._package(KERNELS, KERNEL_VERSIONS[month], ""))

    def _use_overlay(self) -> None:
        """Store layers as differences where the kernel allows it, because copies of them take minutes."""
        conf = Path(self.place.env["CONTAINERS_STORAGE_CONF"])
        copies = conf.read_text()
        conf.write_text(copies.replace('"vfs"', '"overlay"'))
        if subprocess.run(["buildah", "info"], env=self.place.env, capture_output=True).returncode:
            conf.write_text(copies)

    def _variables(self, env: Mapping[str, str]) -> dict[str, str]:
        # As in NGC's images, pip is constrained to the versions of the image itself.
        pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels", "PIP_CONSTRAINT": "/constraint.txt"}
        return {**env, **pip, "PATH": "/usr/bin:/bin", "PYTHONPATH": "/usr/lib/python3/site-packages"}

    def _write_base(self) -> None:
        """Write bash, some programs, Python and pip of this machine, with the libraries that they load."""
        base = self.folder / "base"
        for name in ("tmp", "opt", "proc", "sys", "dev", "etc", "wheels", "usr/bin", "var/tmp"):
            (base / name).mkdir(parents=True, exist_ok=True)
        (base / "constraint.txt").write_text("nvidia-nccl-cu13==99\n")
        (base / "etc/passwd").write_text("root:x:0:0::/tmp:/bin/bash\n")
        for name in _PROGRAMS:
            self._copy_program(Path(shutil.which(name) or "/bin/" + name), base / "usr/bin" / name)
        (base / "bin").symlink_to("usr/bin")
        version = f"python3.{sys.version_info.minor}"
        prefix = Path(sys.base_prefix)
        self._copy_program(prefix / "bin" / version, base / f"usr/bin/{version}")
        (base / "usr/bin/python3").symlink_to(version)
        (base / "usr/bin/sh").symlink_to("bash")
        ignored = ("test", "tests", "idlelib", "lib2to3", "tkinter", "site-packages", "__pycache__", "config-*", "*.a")
        shutil.copytree(
            prefix / "lib" / version, base / "usr/lib" / version, ignore=shutil.ignore_patterns(*ignored), symlinks=True
        )
        for module in (base / "usr/lib" / version / "lib-dynload").glob("*.so"):
            self._copy_libraries(module, base)
        import pip

        shutil.copytree(
            Path(str(pip.__file__)).parent, base / "usr/lib/python3/site-packages/pip",
            ignore=shutil.ignore_patterns("__pycache__"),
        )  # fmt: skip

    def _copy_program(self, source: Path, target: Path) -> None:
        shutil.copy(source.resolve(), target)
        self._copy_libraries(source.resolve(), self.folder / "base")

    def _copy_libraries(self, program: Path, base: Path) -> None:
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for path in re.findall(r"(/\S+) \(0x", listed):
            target = base / path.lstrip("/")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(Path(path).resolve(), target)

    def _library(self, name: str, version: str, folder: str = "usr/lib") -> str:
        """Compile a library of a version, once; return the layer's folder."""
        soname, _, source = _LIBRARIES[name]
        layer = f"{name}-{version}-{folder.replace('/', '-')}"
        path = self.folder / layer / folder / soname
        if not path.exists():
            path.parent.mkdir(parents=True)
            numbers = version.split(".")
            macros = [f"-D{letter}={number}" for letter, number in zip("ABC", numbers, strict=False)]
            command = ["cc", "-shared", "-fPIC", "-x", "c", "-", *macros, f"-Wl,-soname,{soname}", "-o", str(path)]
            subprocess.run(command, input=source, text=True, check=True)
        return layer

    def _wheel_content(self, name: str, version: str) -> str:
        return self._library(name, version, f"{_LIBRARIES[name][1]}/lib")

    def _package(self, name: str, version: str, folder: str) -> str:
        layer = f"{name}-{version}-{'layer' if folder else 'wheel'}"
        module = self.folder / layer / folder / name.replace("-", "_")
        module.mkdir(parents=True, exist_ok=True)
        (module / "__init__.py").write_text(f"__version__ = {version!r}\n")
        return layer

    def _wheel(self, name: str, version: str, content: Path) -> None:
        stem = f"{name.replace('-', '_')}-{version}"
        members = {str(path.relative_to(content)): path.read_bytes() for path in content.rglob("*") if path.is_file()}
        info = f"{stem}.dist-info"
        members[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
        members[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        digests = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()) for path, data in members.items()}
        record = [f"{path},sha256={digest.decode().rstrip('=')}," for path, digest in digests.items()]
        with zipfile.ZipFile(self.folder / f"base/wheels/{stem}-py3-none-any.whl", "w") as wheel:
            for path, data in members.items():
                wheel.writestr(path, data)
            wheel.writestr(f"{info}/RECORD", "\n".join([*record, f"{info}/RECORD,,", ""]))
