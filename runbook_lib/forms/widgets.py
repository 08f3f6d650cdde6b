"""The widgets of a form, without their behaviour.  Each has a label and is reachable by keyboard."""

import html
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from runbook_lib.forms import fields
from runbook_lib.forms import html as form_views
from runbook_lib.forms.decision_cards import DecisionCards
from runbook_lib.forms.fields import Field

if TYPE_CHECKING:
    from runbook_lib.forms.choices import Choices

_WIDE = {"width": "min(46rem, 100% - 4px)"}
_STYLE = {"description_width": "8.5rem"}
_PROMINENT = {"button_color": "#9a3412", "text_color": "#ffffff", "font_weight": "bold"}
_OTHER_TAG = "(another …)"
#: The first option of a field that has no value.
_EMPTY = {"tag": "(choose)", "run_id": "(the newest)"}
_FALLBACK = "Run this notebook in JupyterLab to show its form here."


def show(root: Any, text: str = _FALLBACK) -> None:
    """Show a form, or ``text`` where no kernel is running."""
    from IPython.display import display

    bundle = root._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, "text/plain": text}, raw=True)


class Widgets:
    """All widgets of a form.  Safe to change from any thread."""

    def __init__(self, form_fields: Sequence[Field], values: Mapping[str, object], *, applies: bool) -> None:
        import ipywidgets as widgets

        self._widgets = widgets
        #: The layout and style of the first widget of each kind.
        self._shared: dict[Any, dict[str, Any]] = {}
        self._fields = {field.name: field for field in form_fields}
        #: Each field's input, and the text below it.
        self.inputs: dict[str, Any] = {}
        self.messages: dict[str, Any] = {}
        for field in form_fields:
            self.inputs[field.name] = self._input(field, values.get(field.name, field.default))
            self.messages[field.name] = self._html("runbook-message")
        self.other_tag = self._text("Other tag", own={"layout": self._hidden(**_WIDE)})
        self.cards = DecisionCards(lambda: self._notify("decisions"))
        self.problems: dict[str, str] = {}
        self._notify: Callable[[str], None] = lambda _: None
        self._muted = False
        self.preview = widgets.Button(
            description="Preview" if applies else "Run", button_style="primary", _dom_classes=["runbook-preview"]
        )
        self.apply = widgets.Button(
            description="Apply", disabled=True, style=_PROMINENT, _dom_classes=["runbook-apply"]
        )
        # Never disabled: disabling a focused button would throw a keyboard user out of the form.
        self.cancel = widgets.Button(description="Cancel", _dom_classes=["runbook-cancel"])
        self.confirmation = self._text(
            "Type to confirm", own={"layout": self._hidden(**_WIDE), "style": {"description_width": "initial"}}
        )
        self._plan, self._progress = self._html("runbook-plan"), self._html("runbook-progress")
        self._result = self._html("runbook-result")
        self._error, self._warning = self._html("runbook-error"), self._html("runbook-warning")
        self._status, self._announced = self._html("runbook-status"), ""
        self._more = widgets.ToggleButton(description="More options", value=False)
        self.root = self._layout(form_fields, applies=applies)
        for name, widget in self.inputs.items():
            widget.observe(lambda _, name=name: self._changed(name), names="value")
        self.other_tag.observe(lambda _: self._changed("tag"), names="value")
        self.confirmation.observe(lambda _: self._notify(""), names="value")

    def _layout(self, form_fields: Sequence[Field], *, applies: bool) -> Any:
        blocks: list[Any] = []
        seldom: list[Any] = []
        for field in form_fields:
            block = seldom if field.seldom else blocks
            block.append(self.inputs[field.name])
            if field.name == "tag":
                block.append(self.other_tag)
            block.append(self.messages[field.name])
        if seldom:
            hidden = self._widgets.VBox(seldom, layout=self._hidden())
            self._more.observe(lambda change: self._unfold(hidden, unfold=change["new"]), names="value")
            blocks += [self._more, hidden]
        blocks += [self.cards.root, self._widgets.HBox([self.preview, self.cancel]), self._error, self._status]
        blocks += [self._progress, self._plan, self._warning, self.confirmation]
        if applies:
            blocks.append(self.apply)
        style = files(__package__).joinpath("templates/form.css").read_text("utf-8")
        blocks += [self._result, self._widgets.HTML(f"<style>{style}</style>")]
        return self._widgets.VBox(blocks, _dom_classes=["runbook-form"])

    def focus(self) -> None:
        """Focus the first field."""
        next(iter(self.inputs.values())).focus()

    def show_end(self) -> None:
        """Move the page to what a run has shown, below the buttons."""
        # The page follows the focus, but a page that has become shorter not to what has the focus already.
        self.cancel.blur()
        self.cancel.focus()

    # -- values --------------------------------------------------------------------------------------------------

    def values(self) -> dict[str, str | bool]:
        """Return the current values by parameter."""
        values: dict[str, str | bool] = {}
        for name, widget in self.inputs.items():
            value = widget.value
            values[name] = value if isinstance(value, bool) else str(value or "")
        if values.get("tag") == _OTHER_TAG:
            values["tag"] = self.other_tag.value
        return values

    @property
    def typed(self) -> str:
        """The confirmation as typed."""
        return str(self.confirmation.value).strip()

    def on_change(self, notify: Callable[[str], None]) -> None:
        """Call ``notify`` with the name of each changed parameter, or an empty name for the confirmation."""
        self._notify = notify

    def _changed(self, name: str) -> None:
        if self._muted:
            return
        if name == "tag":
            self._set_visible(self.other_tag, visible=self.inputs["tag"].value == _OTHER_TAG)
        self._notify(name)

    # -- choices -----------------------------------------------------------------------------------

    def offers(self, name: str, value: str) -> bool:
        """Return True if a field offers this value as a choice."""
        return any(option == value for _, option in getattr(self.inputs[name], "options", ()))

    def offer(self, name: str, choices: "Choices") -> None:
        """Offer these choices, keeping the current value."""
        widget = self.inputs[name]
        value = self.values()[name]
        options = [(_EMPTY[name], ""), *((choice.label, choice.value) for choice in choices.choices)]
        chosen = value
        is_listed = any(option == value for _, option in options)
        if name == "tag":
            options.append((_OTHER_TAG, _OTHER_TAG))
            if not is_listed:
                self.other_tag.value = value
                chosen = _OTHER_TAG
            self._set_visible(self.other_tag, visible=not is_listed)
        elif not is_listed:
            options.append((str(value), str(value)))
        self._muted = True  # setting the options briefly selects the first one
        with widget.hold_sync():  # otherwise the page would show the options before it has the value
            widget.options = options
            widget.value = chosen
        self._muted = False
        self.show_hint(name, choices.note)

    def choose_tag(self, tag: str) -> None:
        """Choose a tag, and offer it, unless the user has chosen one."""
        field = self.inputs["tag"]
        if tag and not field.value:
            self._muted = True
            field.options = [*field.options, (tag, tag)]
            field.value = tag
            self._muted = False

    # -- messages ------------------------------------------------------------------------------------------------

    def show_hint(self, name: str, sentence: str) -> None:
        """Show a hint below a field."""
        self.messages[name].value = form_views.hint(sentence)

    def show_problems(self, problems: Mapping[str, str], advice: Mapping[str, str]) -> None:
        """Show the problems below their fields.  In the practice environment the field Publish is hidden."""
        if "mode" in self.inputs:
            self._set_visible(self.inputs["mode"], visible=bool(self.inputs["repo"].value))
        for name, message in self.messages.items():
            if name in problems:
                message.value = form_views.problem(problems[name])
            elif name in self.problems or advice.get(name):
                message.value = form_views.hint(advice.get(name, ""))
        if any(name in self._fields and self._fields[name].seldom for name in problems):
            self._more.value = True  # unfold, because a problem must be visible
        self.problems = dict(problems)

    def request_confirmation(self, word: str) -> None:
        """Ask the user to type ``word``; if it is empty, hide the request."""
        self._set_visible(self.confirmation, visible=bool(word))
        self.confirmation.placeholder = word
        if not word and self.confirmation.value:
            self.confirmation.value = ""

    def clear(self) -> None:
        """Remove the output of the last run."""
        self.show_progress("")
        for widget in (self._error, self._result, self._warning, self._plan):
            widget.value = ""

    def clear_error(self) -> None:
        """Remove the error of the last run, because the values have changed since."""
        if self._error.value:
            self._error.value = self._result.value = ""

    def show_error(self, sentence: str) -> None:
        """Show an error instead of the progress."""
        self.show_progress("")
        self._error.value = f'<div role="alert">{form_views.error(sentence)}</div>'

    def show_warning(self, sentence: str) -> None:
        """Show prominently why Apply is disabled."""
        self._warning.value = form_views.error(sentence)

    def show_next_action(self, sentence: str) -> None:
        """Show what remains to be done before Apply is enabled."""
        self._warning.value = f"<em>{html.escape(sentence)}</em>" if sentence else ""

    def show_progress(self, markup: str, status: str = "") -> None:
        """Show the progress of a run; screen readers announce a new ``status``."""
        self._progress.value = markup
        if status != self._announced:
            self._announced = status
            self._status.value = f'<span role="status">{status}</span>' if status else ""

    def show_plan(self, markup: str) -> None:
        """Show a plan instead of the progress."""
        self.show_progress("")
        self._plan.value = markup

    def dim_plan(self, *, dim: bool) -> None:
        """Dim the plan while the values differ from those it was made for."""
        if dim:
            self._plan.add_class("runbook-stale")
        else:
            self._plan.remove_class("runbook-stale")

    def show_result(self, markup: str) -> None:
        """Show the result of a run instead of its plan and progress."""
        self.show_plan("")
        self._result.value = markup

    # -- construction --------------------------------------------------------------------------------------------

    def _input(self, field: Field, value: object) -> Any:
        if isinstance(field.default, bool):
            label = f"{field.label}: {field.help}"
            return self._widgets.Checkbox(value=bool(value), description=label, layout=_WIDE, style=_STYLE)
        common: dict[str, Any] = {"description": field.label, "tooltip": field.help}
        text = str(value)
        options = [(label, option) for option, label in fields.choices(field.name).items()]
        if field.name in _EMPTY:
            options = [(_EMPTY[field.name], "")]
            if text:
                options.append((text, text))
            if field.name == "tag":
                options.append((_OTHER_TAG, _OTHER_TAG))
        if any(option == text for _, option in options):
            kind = self._widgets.Dropdown
            return self._new(kind, options=options, value=text, layout=_WIDE, style=_STYLE, **common)
        return self._text(value=text, placeholder=field.help, **common)

    def _text(self, description: str, *, own: Mapping[str, Any] | None = None, **options: str) -> Any:
        return self._new(self._widgets.Text, own, description=description, layout=_WIDE, style=_STYLE, **options)

    def _html(self, name: str) -> Any:
        # The second is JupyterLab's style for text, tables and links, in any theme.
        return self._new(self._widgets.HTML, _dom_classes=[name, "jp-RenderedHTMLCommon"])

    def _new(self, kind: Any, own: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Return a widget with the layout and style of the first of its kind, except for its ``own``.

        Each layout and each style is a message to the page, which shows the form after the last of them.
        """
        widget = kind(**options | self._shared.get(kind, {}) | dict(own or {}))
        if own is None:
            self._shared.setdefault(kind, {"layout": widget.layout, "style": widget.style})
        return widget

    def _hidden(self, **layout: str) -> Any:
        return self._widgets.Layout(display="none", **layout)

    def _unfold(self, box: Any, *, unfold: bool) -> None:
        self._set_visible(box, visible=unfold)
        self._more.description = "Fewer options" if unfold else "More options"

    @staticmethod
    def _set_visible(widget: Any, *, visible: bool) -> None:
        widget.layout.display = None if visible else "none"
