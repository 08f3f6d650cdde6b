"""A record's verdict "ready to merge" as an in-toto attestation that other tools can verify.

The statement is a Simple Verification Result (https://in-toto.io/attestation/svr/v0.2) about the head commit, signed in
a DSSE envelope (https://github.com/secure-systems-lab/dsse) by the user's own command.
"""

import base64
import binascii
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runbook_lib import notebooks
from runbook_lib.errors import RunbookError
from runbook_lib.records.archive import read_records
from runbook_lib.records.chain import read_predicate, sha256
from runbook_lib.records.statement import READY_COMMIT, RUN, STATEMENT
from runbook_lib.records.verify import verify

SVR = "https://in-toto.io/attestation/svr/v0.2"
#: The verifier; its number changes if the meaning of "ready to merge" does.
VERIFIER = "urn:base-image-runbook:ready-to-merge:v1"
READY = "BASE_IMAGE_RUNBOOK_READY_TO_MERGE"
#: The property of a practice bump, so that no policy mistakes it for a real one.
PRACTICED = "BASE_IMAGE_RUNBOOK_PRACTICE_READY_TO_MERGE"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_SSH_BEGIN, _SSH_END = b"-----BEGIN SSH SIGNATURE-----", b"-----END SSH SIGNATURE-----"


def ready_statement(record: Path) -> dict[str, Any]:
    """Return the statement that the commit in a bump's record was ready to merge.

    Verifies the bump's records first.  Raises RunbookError unless the record is intact, is the latest of ``bump``, and
    proves that every requirement was met.
    """
    problems, _ = verify(record.parent)
    if problems:
        raise RunbookError(
            f"{record.parent} is not intact, so nothing is attested: {problems[0]} See `runbook audit verify`."
        )
    predicate = read_predicate(record)
    name = predicate["notebook"]["name"]
    if name != notebooks.BUMP:
        raise RunbookError(f"{record.name} is a record of {name}. Only {notebooks.BUMP} records can be ready to merge.")
    commit = (predicate.get("inputs") or {}).get(READY_COMMIT)
    if predicate["state"] != "done" or not commit:
        sentence = (predicate.get("outcome") or {}).get("sentence") or predicate["state"]
        raise RunbookError(f"{record.name} does not say that the bump is ready to merge: {sentence}")
    runs = [run["id"] for run in read_records(record.parent).readable if run["notebook"]["name"] == notebooks.BUMP]
    if runs[-1] != record.name:
        raise RunbookError(f"{record.name} is not the latest record of this bump. Attest {runs[-1]}.")
    return _statement(predicate, commit, sha256(record / RUN))


def _statement(predicate: Mapping[str, Any], commit: str, digest: str) -> dict[str, Any]:
    bump, notebook = predicate["bump"], predicate["notebook"]
    policies = []
    if "sha256" in notebook:
        policies.append({"name": f"{notebook['name']}.ipynb", "digest": {"sha256": notebook["sha256"]}})
    subjects = [
        {"name": bump["repository"], "digest": {"gitCommit": commit}},
        {"name": f"{predicate['id']}/{RUN}", "digest": {"sha256": digest}},
    ]
    verdict = {
        "verifier": {"id": VERIFIER, "policies": policies},
        "timeCreated": predicate["ended"],
        "properties": [PRACTICED if bump["practice"] else READY],
    }
    return {"_type": STATEMENT, "subject": subjects, "predicateType": SVR, "predicate": verdict}


def pre_authentication_encoding(payload: bytes) -> bytes:
    """Return the bytes that a signature covers: DSSE's encoding of the payload and its type."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def envelope(payload: bytes, signature: bytes, key_id: str = "") -> dict[str, Any]:
    """Return the DSSE envelope of a payload and its signature, as the signing command printed it.

    ssh-keygen's armor or cosign's base64 is decoded if present.  Raises RunbookError for an empty signature.
    """
    text = signature.strip()
    if not text:
        raise RunbookError("The signing command printed no signature. It must write one to standard output.")
    if text.startswith(_SSH_BEGIN) and text.endswith(_SSH_END):
        text = b"".join(text.removeprefix(_SSH_BEGIN).removesuffix(_SSH_END).split())
    with contextlib.suppress(binascii.Error):  # else these are the raw bytes
        signature = base64.b64decode(text, validate=True)
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{"keyid": key_id, "sig": base64.b64encode(signature).decode()}],
    }
