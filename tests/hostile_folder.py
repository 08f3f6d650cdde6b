"""A folder that somebody else has filled: whatever a program would take from the folder that it is started in."""

import sys
from pathlib import Path

#: Modules that are imported before the locked environment is there, within it, or by Python itself.
MODULES = (
    *("ensurepip", "venv", "ast", "fcntl", "functools", "os", "pathlib", "shutil", "subprocess", "time", "runpy"),
    *("pkgutil", "encodings", "site", "sitecustomize", "usercustomize", "pip", "uv", "hatchling", "setuptools"),
    *("runbook_lib", "yaml", "json", "typing", "conftest", "papermill", "ipykernel", "ipykernel_launcher", "IPython"),
    *("jupyter_core", "jupyter_config", "jupyter_lab_config", "jupyter_server_config", "ipython_config"),
    *("ipython_kernel_config", "nbformat", "psutil", "matplotlib"),
)
PROGRAMS = ("python", "python3", "python3.11", "dirname", "readlink", "cat", "cmp", "uv", "pip", "git", "jupyter-lab")


def fill(folder: Path) -> Path:
    """Make the folder; returns the file that is written as soon as anything in it is run."""
    marker = folder.parent / f"{folder.name} was run"
    code = f"open({str(marker)!r}, 'a').write(__file__ + '\\n')\n"
    for name in MODULES:
        package = folder / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(code)
        (package / "__main__.py").write_text(code)
    for name in MODULES[::2]:
        (folder / f"{name}.py").write_text(code)
    startup = folder / "profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "00.py").write_text(code)
    for place in (folder, folder / ".ipython/profile_default", folder / ".jupyter", folder / "profile_default"):
        place.mkdir(parents=True, exist_ok=True)
        for name in ("ipython_config", "ipython_kernel_config", "jupyter_config", "jupyter_lab_config"):
            if not (place / f"{name}.py").exists():
                (place / f"{name}.py").write_text(code)
    for name in PROGRAMS:
        if not (folder / name).exists():
            (folder / name).write_text(f"#!/bin/sh\necho {name} >> '{marker}'\n")
            (folder / name).chmod(0o755)
    (folder / "pyvenv.cfg").write_text(f"home = {folder}\n")
    (folder / ".python-version").write_text("2.7.18\n")
    (folder / ".tool-versions").write_text("python 2.7.18\n")
    (folder / ".env").write_text("GITHUB_API_URL=http://127.0.0.1:1\nRUNBOOK_AUDIT=.\n")
    (folder / "pip.conf").write_text("[install]\ntarget = .\n")
    (folder / "uv.toml").write_text("[pip]\ntarget = '.'\n")
    (folder / "sitecustomize.pth").write_text(f"import os; {code}")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (folder / f"lib/python{version}/site-packages").mkdir(parents=True)
    return marker
