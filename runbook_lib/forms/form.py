"""The form of a notebook in JupyterLab.  In a headless run there is none, and its modules are not imported."""

from collections.abc import Callable, Mapping

from runbook_lib.runner import session


def offer(
    notebook: str,
    namespace: Mapping[str, object],
    *,
    applies: bool = True,
    after_run: Callable[[str], None] | None = None,
) -> None:
    """Show the parameters of a notebook as a form, with values from ``namespace``; in a headless run, do nothing.

    With ``applies=False`` the form has only a button *Run*.  ``after_run`` is called with the archive's parameter
    whenever a run has ended.
    """
    if session.interactive():
        from runbook_lib.forms import widgets
        from runbook_lib.forms.notebook_form import Form

        form = Form(session.notebook(notebook), namespace, applies=applies, after_run=after_run)
        widgets.show(form.root)
        form.begin()
