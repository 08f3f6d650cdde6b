"""The library behind the runbook notebooks.

Pure modules (text and data in, text and data out):
    errors, checks, bump (the parameters of a run), edits (spliced text, diffs)
    image, families, nemo, alibaba, coreweave (references and tags), compare (what a new image changes)
    yaml_text, reading, locate, matrix (where pins stand), pins (plan and check), sites (repositories, as data)
    recipes, quarantine, launch_scripts, decisions (rows of tests, put out of the way and back)
    pr_labels, recipe_draft, quarantined (labels a change asks for, a missing row, what is out of the way)
    runs, pull_body, copy_pr_bot, owners, tracking (what CI runs, bodies, the bot, CODEOWNERS and issues mean)
    matching (which upload of CI belongs to which job, and which members hold golden values)
    golden, golden_rules, golden_measure, golden_judge, golden_summary, golden_coverage (golden values, judged)
    triage, triage_patterns, triage_facts, log_lines, log_scan, log_reading (why a job failed, from its logs)
    parameters, statement, redact, harmless (a notebook's parameters; the form of a record; what must not be in it)
Effects (the only modules that touch the world):
    checkout, git_command, blobs (git), registry, registry_http, registry_auth, registry_cache (OCI)
    github, github_issues, github_login, github_errors, github_models (REST API), gitlab (pipelines and jobs)
    ranges, remote_zip, zip_stream (members of a zip on a server, by HTTP ranges)
    files, ledger, provenance, record (what a step did and saw), kernel, kernel_main, listening, executed (Jupyter)
On top, composing them:
    position, preflight, move, sync (steps 0, 1, 2 and 7), proposal, pull_request (step 3), ci (step 4)
    sources, artifacts, golden_run, refresh, golden_diff, plots (step 5: where from, judged, written, drawn)
    logs, failures, investigate (the failed jobs of any run), broken, answer (step 6: decided, carried out)
    rounds (what answers a run is pushed at once), ready (whether the bump may be merged)
    pr_changes, add_test (the commands labels and add-test), base_ci, after_merge (step 8)
    run, job (headless runs and their records), archive, verify, index, report (all records together)
    image_diff, forms, views (widgets; tables and diffs), papermill_command, __main__ (the commands)
    practice (a world to practise in: checkout, forge, GitLab, registry and a CI that misbehaves)
"""
