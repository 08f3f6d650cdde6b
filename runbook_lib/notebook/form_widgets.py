"""The widgets of a form, without their behaviour.  Each has a label and is reachable by keyboard."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import ipywidgets as widgets

from runbook_lib import display
from runbook_lib.notebook import fields
from runbook_lib.notebook.card_widgets import DecisionCards
from runbook_lib.text.notebook_file import NotebookSource, Parameter

_WIDE, _STYLE = {"width": "min(46rem, 100% - 4px)"}, {"description_width": "8.5rem"}
_PROMINENT = {"button_color": "#9a3412", "text_color": "#ffffff", "font_weight": "bold"}
#: The first option of a field that has no value, and the last one of the tags.
_EMPTY, OTHER = {"tag": "(choose)", "run_id": "(the newest)"}, "(another …)"
#: What a form shows of its runs.
_PARTS = ("error", "steps", "progress", "plan", "warning", "cells", "result")


class FormWidgets:
    """The widgets of a form; ``namespace`` has the values of the parameters.  Safe to change from any thread."""

    def __init__(self, source: NotebookSource, namespace: Mapping[str, object]) -> None:
        self._notebook, self._is_muted = source.name, False
        #: Each field's input, and the text below it.
        self.inputs = {it.name: _make_input(it, namespace.get(it.name, it.default)) for it in source.parameters}
        self.messages = {name: _make_html("message") for name in self.inputs}
        self.applies = "mode" in self.inputs
        self.other_tag = widgets.Text(description="Other tag", layout=_WIDE, style=_STYLE, continuous_update=False)
        self.cards = DecisionCards(lambda: self.changed("decisions"))
        self.preview = widgets.Button(description="Preview" if self.applies else "Run", button_style="primary")
        self.apply = widgets.Button(description="Apply", disabled=True, style=_PROMINENT)
        # Never disabled: disabling a focused button would throw a keyboard user out of the form.
        self.cancel = widgets.Button(description="Cancel", _dom_classes=["runbook-cancel"])
        self.confirmation = widgets.Text(description="Type to confirm", layout=_WIDE, style=_STYLE)
        self.parts = {name: _make_html(name) for name in _PARTS}
        self.root = self._layout()
        for name, widget in {**self.inputs, "": self.other_tag}.items():
            widget.observe(lambda _, name=name or "tag": self._report(name), names="value")

    def _report(self, name: str) -> None:
        if not self._is_muted:
            self.changed(name)

    def changed(self, name: str) -> None:
        """React to a change of a field by the user."""

    def _layout(self) -> Any:
        often: list[Any] = []
        seldom: list[Any] = []
        for name, widget in self.inputs.items():
            block = seldom if fields.seldom(name, self._notebook) else often
            block += [widget, *([self.other_tag] if name == "tag" else []), self.messages[name]]
        more, hidden = widgets.ToggleButton(description="More options", value=False), widgets.VBox(seldom)
        self._more = more
        set_visible(hidden, visible=False)
        more.observe(lambda change: set_visible(hidden, visible=change["new"]), names="value")
        style = widgets.HTML(f"<style>{files(__package__).joinpath('form.css').read_text('utf-8')}</style>")
        part = self.parts
        rows = [*often, *([more, hidden] if seldom else []), self.cards.root]
        rows += [widgets.HBox([self.preview, self.cancel]), part["error"], part["steps"], part["progress"]]
        rows += [part["plan"], part["warning"], self.confirmation, *([self.apply] if self.applies else [])]
        rows += [part["cells"], part["result"], style]
        return widgets.VBox(rows, _dom_classes=["runbook-form"])

    def values(self) -> dict[str, str | bool]:
        """Return the current values by parameter."""
        values = {name: it.value if isinstance(it.value, bool) else it.value or "" for name, it in self.inputs.items()}
        if values.get("tag") == OTHER:
            values["tag"] = self.other_tag.value
        return values

    def offer(
        self, name: str, choices: Sequence[tuple[str, str]], note: str = "", value: str | None = None
    ) -> None:  # fmt: skip
        """Offer these choices of a field, with a note below, and keep its value; another tag is typed."""
        self.messages[name].value = display.note(note).html if note else ""
        value = str(self.values()[name]) if value is None else value
        widget, options = self.inputs[name], [(_EMPTY[name], ""), *choices]
        is_listed = value in [each for _, each in options]
        if name == "tag":
            options.append((OTHER, OTHER))
        elif not is_listed:
            options.append((value, value))
        self._is_muted = True  # setting the options briefly selects the first one
        with widget.hold_sync():  # otherwise the page would show the options before it has the value
            widget.options = options
            widget.value = value if is_listed or name != "tag" else OTHER
        if widget.value == OTHER:
            self.other_tag.value = value
        self._is_muted = False


def _make_input(parameter: Parameter, value: object) -> Any:
    """Return the input of a parameter: a list for a fixed choice, or one that is filled from outside."""
    label = fields.LABELS.get(parameter.name, parameter.name)
    if isinstance(parameter.default, bool):
        description = f"{label}: {parameter.help}"
        return widgets.Checkbox(value=bool(value), description=description, layout=_WIDE, style=_STYLE)
    common: dict[str, Any] = {"description": label, "tooltip": parameter.help, "layout": _WIDE, "style": _STYLE}
    text = str(value)
    options = [(shown, option) for option, shown in fields.choices(parameter.name).items()]
    if parameter.name in _EMPTY:
        options = list({"": _EMPTY[parameter.name], text: text or _EMPTY[parameter.name]}.items())
        options = [(shown, option) for option, shown in options]
        if parameter.name == "tag":
            options.append((OTHER, OTHER))
    if text in [option for _, option in options]:
        return widgets.Dropdown(options=options, value=text, **common)
    return widgets.Text(value=text, placeholder=parameter.help, continuous_update=False, **common)


def _make_html(name: str) -> Any:
    """Return a text of the form; its class begins with ``runbook-``."""
    # The second is JupyterLab's style for text, tables and links, in any theme.
    return widgets.HTML(_dom_classes=[f"runbook-{name}", "jp-RenderedHTMLCommon"])


def as_problem(sentence: str) -> str:
    """Return a problem as HTML."""
    return f'<strong class="runbook-problem">✗ {display.linked(sentence)}</strong>'


def set_visible(widget: Any, *, visible: bool) -> None:
    """Show or hide a widget, which then has a layout of its own."""
    widget.layout.display = None if visible else "none"
