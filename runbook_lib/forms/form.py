"""The form of a notebook in JupyterLab.  In a headless run there is none, and its modules are not imported."""

from collections.abc import Mapping

from runbook_lib.runner import session


def offer(notebook: str, namespace: Mapping[str, object], *, applies: bool = True) -> None:
    """Show the parameters of a notebook as a form, with values from ``namespace``; in a headless run, do nothing.

    With ``applies=False`` the form has only a button *Run*.
    """
    if session.interactive():
        from runbook_lib.forms import widgets
        from runbook_lib.forms.notebook_form import Form

        form = Form(session.notebook(notebook), namespace, applies=applies)
        widgets.show(form.root)
        form.begin()
