"""A pull request's description: the repository's template, or people's text, around our own part.

Our part is between two markers, invisible on GitHub.  An update replaces only the text between them.
Outside values (paths, rows, images, warnings) are shown literally: they cannot mention anybody, close an issue, form
a table, hide text, or give a command to a bot or to CI.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from runbook_lib.bump import Bump
from runbook_lib.pins.plan import PinPlan
from runbook_lib.workflow import markdown_texts

_BEGIN = re.compile(r"<!-- base-image-runbook:begin(?: (?P<bump>[^\s<>]+))? -->")
#: Our parts of a description, in the order in which they are created: the pins, the golden values, the quarantined
#: tests.
Section = Literal["", "golden-values", "broken-tests"]
#: The paths where GitHub searches for a pull request template, in this order.
TEMPLATES = (
    ".github/pull_request_template.md", ".github/PULL_REQUEST_TEMPLATE.md", "pull_request_template.md",
    "PULL_REQUEST_TEMPLATE.md", "docs/pull_request_template.md", "docs/PULL_REQUEST_TEMPLATE.md",
)  # fmt: skip


def name_of(bump: Bump) -> str:
    """Return the name of a bump for use in a marker."""
    return f"{bump.base}/{bump.image_type}-{bump.target or 'none'}"


def named_in(body: str) -> str:
    """Return the bump named by the marker in a body; empty without a marker."""
    match = _BEGIN.search(body)
    return (match["bump"] or "") if match else ""


def fill_in(template: str, sentence: str) -> str:
    """Return a repository's template with the common parts of every bump filled in, and the rest unchanged.

    That is the ``sentence`` on the change in place of the comment below the first heading, that no issue is linked, and
    the boxes that a change of pins alone meets: "…, or none are needed".  Only a person can tick the others.
    """
    lines = template.splitlines(keepends=True)
    has_sentence = False
    for number, line in enumerate(lines):
        text = line.rstrip("\r\n")
        is_comment = text.strip().startswith("<!--") and text.strip().endswith("-->")
        new = text
        if is_comment and not has_sentence and number and lines[number - 1].startswith("#"):
            new, has_sentence = sentence, True
        elif text.lower().startswith("linked issue: <!--") and text.endswith("-->"):
            new = f"{text[: len('linked issue:')]} none"
        elif text.startswith("- [ ] ") and "none are needed" in text.lower():
            new = text.replace("[ ]", "[x]", 1)
        lines[number] = new + line[len(text) :]
    return "".join(lines)


def marked(text: str, bump: Bump, section: Section) -> str:
    """Return a part enclosed in its section's markers."""
    name = f"base-image-runbook:{section}{':' * bool(section)}"
    return f"<!-- {name}begin {name_of(bump)} -->\n{text.strip()}\n<!-- {name}end -->"


def part(
    plan: PinPlan, bump: Bump, digests: Mapping[str, str], record: str, image: str = "", validation: Sequence[str] = ()
) -> str:
    """Return our part, with its markers: the changed pins, digests (platform → digest), warnings, the record.

    ``image`` lists the changes in the new image, as Markdown; ``validation`` has the steps that validate an LTS bump.
    """
    other_type = "" if "both-types" in bump.allow else bump.repository.other_type(bump.image_type)
    text = markdown_texts.render(
        "pins", plan=plan, bump=bump, other_type=other_type, digests=digests, image=image, validation=validation,
        record=record,
    )  # fmt: skip
    return marked(text, bump, "")
