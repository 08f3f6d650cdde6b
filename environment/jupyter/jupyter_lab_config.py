"""JupyterLab settings: it opens and runs the start page.

These are defaults: the user's own settings take precedence.  labconfig/default_setting_overrides.json has more: no news
and no update checks; widgets' messages in the kernel's main channel, because over subshells JupyterLab loses some after
a reload; no autosave, because viewing a notebook should not change it; long lines wrap, and every cell is rendered, so
that the browser's search finds it.
"""

from pathlib import Path

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
