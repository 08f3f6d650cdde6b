"""JupyterLab settings: it opens and runs the start page, with the table of contents beside it.

These are defaults: the user's own settings take precedence.  More are in labconfig/default_setting_overrides.json.
"""

import json
import os
from pathlib import Path

from jupyterlab_server.workspaces_handler import WorkspacesManager

c = get_config()  # noqa: F821 - Jupyter provides it

here = Path(__file__).resolve().parent
c.LabApp.extra_labextensions_path = [str(here / "labextensions")]

START = "00-start.ipynb"
if start := next((path for path in (f"runbooks/{START}", START) if Path(path).is_file()), None):
    c.LabApp.default_url = f"/lab/tree/{start}"
    # Only the shipped page runs on opening: one of that name in the current folder may come from anybody.
    shipped = here.parents[1] / "runbooks" / START
    if shipped.is_file() and (shipped.samefile(start) or shipped.read_bytes() == Path(start).read_bytes()):
        c.ServerApp.tornado_settings = {"page_config_data": {"runbookStart": start}}

# A layout is not a setting, so a workspace is created once, separate from those of the user's other work.
state = Path(os.environ.get("XDG_STATE_HOME", ""))
state = state if state.is_absolute() else Path.home() / ".local/state"
folder = state / "base-image-runbook" / "workspaces"
toc = "@jupyterlab/toc:plugin"
left = {"collapsed": False, "visible": True, "current": toc, "widgets": ["filebrowser", "running-sessions", toc]}
layout = {"main": None, "left": left, "right": {"collapsed": True, "visible": True}, "relativeSizes": [0.2, 0.8, 0]}
try:
    if not folder.is_dir():
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
        workspace = {"data": {"layout-restorer:data": layout}, "metadata": {"id": "default"}}
        WorkspacesManager(str(folder)).save("default", json.dumps(workspace))
    c.LabApp.workspaces_dir = str(folder)
except OSError:
    pass  # without a writable home folder, JupyterLab's own layout is used
