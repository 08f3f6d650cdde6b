"""The widgets of a form, and nothing that they mean: every one with a label, reached by the keyboard alone."""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runbook_lib.forms import fields
from runbook_lib.forms import html as form_views
from runbook_lib.forms.choices import Choices
from runbook_lib.forms.fields import Field

_WIDE = {"width": "min(46rem, 100%)"}
_STYLE = {"description_width": "8.5rem"}
_LOUD = {"button_color": "#9a3412", "text_color": "#ffffff", "font_weight": "bold"}
_TYPED = "(another …)"
_TO_DECIDE = "<strong>For you to decide</strong>: tick what you decide so, and say why."
_FALLBACK = "Run this notebook in JupyterLab to have its form here."


@dataclass(frozen=True, eq=False)
class _Row:
    """Something to decide: a box to tick and the reason, which ``whole`` shows."""

    box: Any
    reason: Any
    whole: Any


def show(root: Any) -> None:
    """Show a form; where there is no kernel behind it, a sentence stands in its place."""
    from IPython.display import display

    bundle = root._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/plain": _FALLBACK}, raw=True)


class Widgets:
    """All widgets of a form.  May be changed from any thread."""

    def __init__(self, wanted: Sequence[Field], values: Mapping[str, object], *, applies: bool) -> None:
        import ipywidgets as widgets

        self._w = widgets
        self._fields = {it.name: it for it in wanted}
        self._inputs = {it.name: self._input(it, values.get(it.name, it.default)) for it in wanted}
        self._told = {it.name: self._html("runbook-told") for it in wanted}
        self._typed = widgets.Text(description="Other tag", layout=_WIDE, style=_STYLE)
        self._typed.layout.display = "none"
        self._rows: dict[tuple[str, str], _Row] = {}
        self._notify: Callable[[str], None] = lambda _: None
        self._muted = False
        self._to_decide, self._plots = widgets.HTML(_TO_DECIDE), widgets.HTML()
        self.problems: dict[str, str] = {}
        self.preview = widgets.Button(description="Preview" if applies else "Run", button_style="primary")
        self.apply = widgets.Button(description="Apply", disabled=True, style=_LOUD)
        # Never disabled: a button that has the focus and is disabled throws who uses the keyboard out of the form.
        self.cancel = widgets.Button(description="Cancel")
        self._confirm = widgets.Text(
            description="Type to confirm", layout=_WIDE, style={"description_width": "initial"}
        )
        self._confirm.layout.display = "none"
        self._plan, self._progress, self._result = map(
            self._html, ("runbook-plan", "runbook-progress", "runbook-result")
        )
        self._undecided = self._html("runbook-told")
        self._far, self._heard = self._html("runbook-far"), ""
        self._error, self._warning = self._html("runbook-error"), self._html("runbook-warning")
        self._decisions = widgets.VBox([])
        seldom = [self._block(it) for it in wanted if it.seldom]
        self._more = widgets.ToggleButton(description="More options", value=False)
        hidden = widgets.VBox(seldom)
        hidden.layout.display = "none"
        self._more.observe(lambda change: self._fold(hidden, open_=change["new"]), names="value")
        self.root = widgets.VBox(
            [*(self._block(it) for it in wanted if not it.seldom), *([self._more, hidden] if seldom else []),
             self._decisions, widgets.HBox([self.preview, self.cancel]), self._error, self._far, self._progress,
             self._plan, self._warning, self._confirm, *([self.apply] if applies else []), self._result]
        )  # fmt: skip
        self.root.add_class("runbook-form")
        for name, widget in self._inputs.items():
            widget.observe(lambda change, name=name: self._changed(name), names="value")
        self._typed.observe(lambda _: self._changed("tag"), names="value")
        self._confirm.observe(lambda _: self._notify(""), names="value")

    # -- values --------------------------------------------------------------------------------------------------

    def values(self) -> dict[str, str | bool]:
        """What the form says now, by parameter."""
        found: dict[str, str | bool] = {}
        for name, widget in self._inputs.items():
            value = widget.value
            found[name] = value if isinstance(value, bool) else str(value or "")
        if found.get("tag") == _TYPED:
            found["tag"] = self._typed.value
        for parameter in fields.DECIDED:
            if (chosen := self._chosen(parameter)) and parameter in found:
                found[parameter] = "; ".join(filter(None, [str(found[parameter]), fields.decided(chosen)]))
        if "allow" in found:
            found["allow"] = ", ".join(filter(None, [str(found["allow"]), *self._chosen("allow")]))
        return found

    def lacking(self) -> dict[str, str]:
        """What is chosen without a reason, by parameter."""
        found = {}
        for parameter in fields.DECIDED:
            if told := fields.unreasoned(self._chosen(parameter)):
                found[parameter] = told
        return found

    def _chosen(self, parameter: str) -> dict[str, str]:
        rows = self._rows.items()
        return {name: row.reason.value for (of, name), row in rows if of == parameter and row.box.value}

    def confirmed(self, word: str) -> bool:
        """Whether that was typed to confirm."""
        return bool(word) and self.typed == word

    @property
    def typed(self) -> str:
        """What was typed to confirm."""
        return str(self._confirm.value).strip()

    def on_change(self, hear: Callable[[str], None]) -> None:
        """Tell ``hear`` the name of each parameter that is changed."""
        self._notify = hear

    def _changed(self, name: str) -> None:
        if self._muted:
            return
        if name == "tag":
            self._show(self._typed, self._inputs["tag"].value == _TYPED)
        self._notify(name)

    # -- what is offered -----------------------------------------------------------------------------------------

    def offer(self, name: str, found: Choices) -> None:
        """Offer these choices, keeping what is chosen."""
        widget = self._inputs[name]
        value = self.values()[name]
        options = [
            ("(choose)" if name == "tag" else "(the newest)", ""),
            *((it.label, it.value) for it in found.choices),
        ]
        known = [option for _, option in options]
        if name == "tag":
            options.append((_TYPED, _TYPED))
            if value not in known:
                self._typed.value = value
        elif value not in known:
            options.append((str(value), str(value)))
        chosen = value if value in known or name != "tag" else _TYPED
        self._muted = True  # new options choose the first of them for a moment
        widget.options = options
        widget.value = chosen
        self._muted = False
        if name == "tag":
            self._show(self._typed, chosen == _TYPED)
        self.say(name, found.note)

    def pending(self, decisions: Sequence[Mapping[str, str]], plots: str = "", *, keep: bool = True) -> None:
        """Offer what a person has to decide, a row each.

        What was chosen before stays chosen, though a run that was given it asks for it no more, unless not ``keep``.
        """
        asked = {(it["parameter"], it["name"]): it for it in decisions if it["parameter"] in self._inputs}
        before = self._rows
        chosen = {key: row for key, row in before.items() if keep and row.box.value and key not in asked}
        self._rows = chosen | {key: (keep and before.get(key)) or self._row(it) for key, it in asked.items()}
        if plots or not keep:
            self._plots.value = form_views.folded("How the values that are held back moved, step by step", plots)
        shown = [row.whole for row in self._rows.values()]
        self._decisions.children = [self._to_decide, self._plots, *shown, self._undecided] if shown else []
        for row in before.values():
            if row not in self._rows.values():
                for widget in (row.whole, *row.whole.children):
                    widget.close()

    def _row(self, it: Mapping[str, str]) -> "_Row":
        names = {"accept": "Accept", "broken": "Broken", "reenable": "Let run again", "allow": "Confirm"}
        what = names[it["parameter"]]
        box = self._w.Checkbox(value=False, description=f"{what}: {it['name']}", indent=False, layout=_WIDE)
        reason = self._w.Text(
            value=it["suggestion"], description="Reason", placeholder="why", layout=_WIDE, style=_STYLE
        )
        reason.tooltip = f"Reason for {it['name']}"
        self._show(reason, it["parameter"] in fields.DECIDED)  # an exception is given by its name alone
        for widget in (box, reason):
            widget.observe(lambda _: self._notify(it["parameter"]), names="value")
        return _Row(box, reason, self._w.VBox([box, self._w.HTML(form_views.hint(it["why"])), reason]))

    # -- what is said --------------------------------------------------------------------------------------------

    def say(self, name: str, sentence: str) -> None:
        """A hint below a field."""
        self._told[name].value = form_views.hint(sentence)

    def show_problems(self, problems: Mapping[str, str], advice: Mapping[str, str]) -> None:
        """What is wrong with fields, below each.  In the practice world there is nothing to publish to."""
        if "publish" in self._inputs:
            self._show(self._inputs["publish"], bool(self._inputs["repo"].value))
        for name in self._inputs:
            if name in problems:
                self._told[name].value = form_views.problem(problems[name])
            elif name in self.problems or advice.get(name):
                self._told[name].value = form_views.hint(advice.get(name, ""))
        self._undecided.value = form_views.problem(" ".join(self.lacking().values()))
        if any(self._fields[it].seldom and it not in self.lacking() for it in problems):
            self._more.value = True  # what is wrong must be seen
        self.problems = dict(problems)

    def ask_for(self, word: str) -> None:
        """Ask to type it; empty: do not ask."""
        self._show(self._confirm, bool(word))
        self._confirm.placeholder = word
        if not word and self._confirm.value:
            self._confirm.value = ""

    def clear(self) -> None:
        """Take away what the last run showed."""
        self.progress("")
        for it in (self._error, self._result, self._warning, self._plan):
            it.value = ""

    def fail(self, sentence: str) -> None:
        """Show an error, in place of the progress that led to it."""
        self.progress("")
        self._error.value = f'<div role="alert">{form_views.error(sentence)}</div>'

    def warn(self, sentence: str) -> None:
        """Show loudly why Apply cannot be pressed."""
        self._warning.value = form_views.error(sentence)

    def hint(self, sentence: str) -> None:
        """Say what is left to do before Apply can be pressed."""
        self._warning.value = f"<em>{html.escape(sentence)}</em>" if sentence else ""

    def progress(self, markup: str, far: str = "") -> None:
        """Show how far a run is; ``far`` is also read out, whenever it is something new."""
        self._progress.value = markup
        if far != self._heard:
            self._heard = far
            self._far.value = f'<span role="status">{far}</span>' if far else ""

    def plan(self, markup: str) -> None:
        """Show a plan in place of the progress that led to it."""
        self.progress("")
        self._plan.value = markup

    def result(self, markup: str, *, shown: str = "") -> None:
        """Show how a run ended, and what it found."""
        self.progress("")
        self._plan.value = ""
        self._result.value = markup + shown

    # -- making --------------------------------------------------------------------------------------------------

    def _input(self, it: Field, value: object) -> Any:
        w = self._w
        if isinstance(it.default, bool):
            return w.Checkbox(value=bool(value), description=it.label, style=_STYLE)
        text = str(value)
        if it.name in ("tag", "run_id"):
            first = "(choose)" if it.name == "tag" else "(the newest)"
            options = [
                (first, ""),
                *([(text, text)] if text else []),
                *([(_TYPED, _TYPED)] if it.name == "tag" else []),
            ]
            return w.Dropdown(options=options, value=text, description=it.label, layout=_WIDE, style=_STYLE)
        known = [(label, value) for value, label in fields.CHOICES.get(it.name, {}).items()]
        if text in [option for _, option in known]:
            return w.Dropdown(options=known, value=text, description=it.label, layout=_WIDE, style=_STYLE)
        return w.Text(value=text, placeholder=it.help, description=it.label, layout=_WIDE, style=_STYLE)

    def _block(self, it: Field) -> Any:
        widget = self._inputs[it.name]
        widget.tooltip = it.help
        inside = [widget, self._told[it.name]]
        return self._w.VBox([*inside[:1], *([self._typed] if it.name == "tag" else []), *inside[1:]])

    def _html(self, name: str) -> Any:
        made = self._w.HTML()
        made.add_class(name)
        made.add_class("jp-RenderedHTMLCommon")  # JupyterLab's own look of texts, tables and links, in any theme
        return made

    def _fold(self, box: Any, *, open_: bool) -> None:
        self._show(box, open_)
        self._more.description = "Fewer options" if open_ else "More options"

    @staticmethod
    def _show(widget: Any, shown: bool) -> None:
        widget.layout.display = None if shown else "none"
