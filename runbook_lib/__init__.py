"""The library behind the runbook notebooks.

Pure modules (text and data in, text and data out):
    errors, checks, image (references and tags), bump (the parameters of a run), edits (spliced text, diffs)
    reading, locate, matrix (where pins stand), pins (plan and check), sites (the repositories we know, as data)
    matching (which upload of CI belongs to which job, and which members hold golden values)
    runs, pull_body, copy_pr_bot (what CI runs, bodies and the bot's comments mean)
    golden, golden_rules, golden_measure, golden_judge, golden_summary, golden_coverage (golden values, judged)
    matching (which CI job a golden file comes from)
    parameters, statement, redact, harmless (a notebook's parameters; the form of a record; what must not be in it)
Effects (the only modules that touch the world):
    checkout, blobs (git), registry, registry_http (OCI), github, github_errors, github_models (REST API)
    gitlab (pipelines and jobs), ranges, remote_zip (members of a zip on a server, by HTTP ranges)
    artifacts, ranges, remote_zip, gitlab (what CI produced)
    files, ledger, provenance, record (what a step did and saw), kernel, kernel_main, listening, executed (Jupyter)
On top, composing them:
    position, preflight, move, sync (steps 0, 1, 2 and 7), proposal, pull_request (step 3), ci (step 4)
    sources, artifacts (golden files out of a CI run)
    sources, golden_diff, plots (golden values: where from, compared, drawn)
    run, job (headless runs and their records), archive, verify, index, report (all records together)
    forms, views (widgets; tables and diffs), papermill_command, __main__ (the commands)
    practice (a world to practise in: checkout, forge, registry and a CI that misbehaves)
"""
