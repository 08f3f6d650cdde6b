"""The library behind the runbook notebooks.  Imports go down this list only.

cli, forms        the ``runbook`` command; the JupyterLab forms
steps             one module or folder per notebook
workflow          code shared by steps: the bump's branch, pull request and CI run, rounds, readiness
runner            headless execution of notebooks
practice          the practice environment: forge, GitLab, registry, CI
slurm             client, batch files, job states, following
containers        engines, image builds, work inside an image
triage            from logs to a root cause
golden            golden values: read, compared, judged, summarized, collected, plotted
records           the records of runs: statement, hash chain, archive, verification, HTML pages
display           tables and diffs
clients, git      GitHub, GitLab and registries; checkouts, the git command, blobs
transport, system bounded HTTP, byte ranges, remote zips; files, locks, processes
bump              the parameters of a bump
recipes           test rows: read, quarantine, re-enable, draft
pins              pin sites, the plan of a bump, the sync check
images            references, tag families, changes in a new image, drivers
text              pure text functions: edits, YAML spans, Dockerfiles, Markdown, redaction
checks, errors    the result of a check; the errors shown to people
notebooks         the notebooks' names, and the steps of a bump
"""
