"""A notebook's form in JupyterLab.  A headless run has no form and does not import the form's modules."""

from collections.abc import Callable, Mapping

from runbook_lib.notebook import session
from runbook_lib.system import startup


def offer(
    notebook: str,
    namespace: Mapping[str, object],
    *,
    applies: bool = True,
    on_progress: Callable[[], None] | None = None,
) -> None:
    """Show the parameters of a notebook as a form, with values from ``namespace``; in a headless run, do nothing.

    With ``applies=False`` the form's only button is *Run*.  ``on_progress`` is called with the form's value for the
    archive when a run ends, and while it applies, when it begins and when a step ends.
    """
    if session.interactive():
        startup.skip_httpx_command()
        from runbook_lib.forms import widgets
        from runbook_lib.forms.notebook_form import Form

        form = Form(session.notebook(notebook), namespace, applies=applies, on_progress=on_progress)
        widgets.show(form.root)
        form.begin()
