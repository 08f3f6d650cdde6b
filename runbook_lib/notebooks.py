"""The names of the notebooks in ``runbooks/``, as used in files, records, messages and commands."""

BUMP = "bump"
START = "00-start"
PREFLIGHT = "00-preflight"
GITHUB_PIN = "01-github-pin"
GITLAB_PIN = "02-gitlab-pin"
OPEN_PR = "03-open-pr"
RUN_CI = "04-run-ci"
GOLDEN_VALUES = "05-golden-values"
BROKEN_TESTS = "06-broken-tests"
SYNC_CHECK = "07-sync-check"
AFTER_MERGE = "08-after-merge"
#: The last step of a bump, and the command that asks for the decisions, which have no notebooks of their own.
READY, REVIEW = "ready", "review"
INVESTIGATE_CI = "investigate-ci"
BISECT_IMAGE = "bisect-image"

#: The steps that a bump repeats as long as they start another round of CI.
CI_ROUND = (RUN_CI, GOLDEN_VALUES, BROKEN_TESTS)
#: The steps of a bump that change something, in order.
CHANGING_STEPS = (GITHUB_PIN, GITLAB_PIN, OPEN_PR, *CI_ROUND)
#: All steps of a bump, in order.
STEPS = (PREFLIGHT, *CHANGING_STEPS, SYNC_CHECK)
