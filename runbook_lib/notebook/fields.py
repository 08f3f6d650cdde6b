"""The fields of a notebook's form: labels, choices, and what comes next in its words.  Pure."""

from collections.abc import Mapping

from runbook_lib import notebooks
from runbook_lib.checks import Next

#: Labels by parameter.
LABELS = {
    "tag": "Tag", "repo": "Checkout", "image_type": "Image type", "base": "Base branch", "remote": "Push to",
    "decisions": "File of decisions", "mode": "Apply", "wait": "Wait for CI", "run_id": "CI run", "source": "Source",
    "place": "Where", "task": "Task", "where": "Runs", "image": "Image", "tests": "Tests", "how": "How",
    "arguments": "Arguments", "site": "Site file", "jobs": "Jobs", "good": "Last good tag", "test": "Test",
    "metric": "Metric", "budget": "Runs at most",
}  # fmt: skip
_CHOICES: Mapping[str, Mapping[str, str]] = {
    "image_type": {
        "dev": "dev: what CI runs in by default",
        "lts": "lts: the long-term image, whose pins rarely move; a maintainer decides when",
    },
    "mode": {"": "here only: nothing leaves this machine", "publish": "publish: push, pull request, labels, comments"},
    "source": {"github": "GitHub, then GitLab", "gitlab": "GitLab only"},
    "how": {
        "build": "build: the image of this checkout",
        "pull": "pull: the image that internal CI built",
    },
}


def choices(name: str) -> Mapping[str, str]:
    """Return the labels of a field's values; none for a field that takes any text."""
    if name not in ("task", "where"):
        return _CHOICES.get(name, {})
    # Imported for these fields only: every form waits for what is imported above.
    from runbook_lib.compute.tasks import TABLE, TASKS

    if name == "task":
        return {task: f"{task}: {text}" for task, text in TASKS.items()}
    return {"": "(what this machine has)"} | {target: f"{target}: {text}" for target, text in TABLE["where"].items()}


def in_form(following: Next, notebook: str, values: Mapping[str, object]) -> str:
    """Return what comes next in the form of ``notebook``, which has these values: what to press instead of commands."""
    name = following.notebook
    changes = {each: value for each, value in following.parameters.items() if values.get(each) != value}
    filled_in = ", ".join(f"{LABELS.get(each, each)}: {value}" for each, value in changes.items())
    action = ""
    if name == notebooks.REVIEW:
        action = "Decide on the cards, then press Preview and Apply."
    elif name == notebook:
        action = f"{f'Choose {filled_in}. ' if filled_in else ''}Press Preview, then Apply."
    elif name:
        action = f"Open {name}{' with ' if filled_in else ''}{filled_in}."
    return f"{following.because} {action}".strip()
