"""A notebook's parameters that describe a cluster."""

from dataclasses import dataclass
from pathlib import Path

from runbook_lib.compute.slurm import site_file
from runbook_lib.compute.slurm.site import Site
from runbook_lib.errors import RunbookError
from runbook_lib.system.files import read_named


@dataclass(frozen=True)
class SiteOptions:
    """A site file, and what overrides it; all may be empty."""

    file: str = ""
    results: str = ""
    partition: str = ""
    account: str = ""
    image: str = ""
    mounts: str = ""

    def read(self, checkout: Path) -> Site:
        """Return the site that they describe.  Raises RunbookError."""
        text = ""
        if self.file:
            try:
                text = read_named(Path(self.file).expanduser()).decode("utf-8", "replace")
            except (OSError, ValueError) as error:  # ValueError: an impossible file name
                raise RunbookError(
                    f"The site file {self.file!r} cannot be read: {error}. Correct the parameter."
                ) from error
        parameters = {name: value for name, value in vars(self).items() if name != "file"}
        return site_file.parse(text, self.file or "(none)", str(checkout), **parameters)
