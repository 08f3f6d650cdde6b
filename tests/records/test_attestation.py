"""Attestations, verified by tools that are not ours."""

import base64
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from archives import BUMP, edit, flip, record
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from runbook_lib.cli.__main__ import main
from runbook_lib.errors import RunbookError
from runbook_lib.records.attestation import PRACTICED, READY, SVR, ready_statement
from runbook_lib.records.statement import Identity

COMMIT = "a1" * 20
READY_INPUTS = {"ready_commit": COMMIT}


def ready(audit: Path, at: int = 0, bump: Identity = BUMP) -> Path:
    name = record(audit, "bump", "done", "Ready to merge.", at=at, bump=bump, inputs=READY_INPUTS)
    return audit.joinpath(*bump.parts, name)


def test_states_which_commit_was_ready(tmp_path: Path) -> None:
    folder = ready(tmp_path)
    statement = ready_statement(folder)
    assert statement["predicateType"] == SVR
    assert statement["subject"][0] == {"name": "o/r", "digest": {"gitCommit": COMMIT}}
    assert statement["predicate"]["properties"] == [READY]
    assert statement["predicate"]["timeCreated"] == "2026-04-01T00:00:30.000Z"
    assert statement["predicate"]["verifier"]["policies"] == []


def test_a_practice_bump_is_attested_as_one(tmp_path: Path) -> None:
    folder = ready(tmp_path, bump=replace(BUMP, practice=True))
    assert ready_statement(folder)["predicate"]["properties"] == [PRACTICED]


@pytest.mark.parametrize(
    ("notebook", "state", "inputs"),
    [
        ("bump", "waiting", READY_INPUTS),
        ("bump", "previewed", READY_INPUTS),
        ("bump", "failed", READY_INPUTS),
        ("bump", "done", {}),  # CI is not followed there
        ("07-sync-check", "done", READY_INPUTS),
    ],
)
def test_attests_nothing_else(tmp_path: Path, notebook: str, state: str, inputs: dict[str, str]) -> None:
    name = record(tmp_path, notebook, state, inputs=inputs)
    with pytest.raises(RunbookError, match=name):
        ready_statement(tmp_path.joinpath(*BUMP.parts, name))


def test_attests_only_the_latest_record_of_the_bump(tmp_path: Path) -> None:
    folder = ready(tmp_path)
    later = record(tmp_path, "bump", "waiting", "not ready", at=5)
    with pytest.raises(RunbookError, match=later):
        ready_statement(folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: flip(folder / "executed.ipynb"),
        lambda folder: (folder / "report.html").unlink(),
        lambda folder: edit(folder / "run.json", lambda run: run["predicate"]["inputs"].update(ready_commit="b2" * 20)),
    ],
)
def test_attests_nothing_of_a_changed_record(tmp_path: Path, change: Callable[[Path], object]) -> None:
    folder = ready(tmp_path)
    change(folder)
    with pytest.raises(RunbookError, match="not intact"):
        ready_statement(folder)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    subprocess.run(["openssl", "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path], check=True)
    return path


def attest(folder: Path, sign: str, output: Path, *more: str) -> dict[str, Any]:
    assert main(["audit", "attest", str(folder), "--sign", sign, "--output", str(output), *more]) == 0
    document: dict[str, Any] = json.loads(output.read_bytes())
    return document


def test_another_verifier_accepts_100_statements_and_rejects_every_changed_copy(tmp_path: Path, key: Path) -> None:
    pem = subprocess.run(["openssl", "ec", "-in", key, "-pubout"], check=True, capture_output=True).stdout
    public = SSlibKey.from_crypto(load_pem_public_key(pem), keyid="release")
    chance, rejected = random.Random(4), 0
    sign = f"openssl dgst -sha256 -sign {key}"
    for number in range(100):
        folder = ready(tmp_path / str(number), at=number)
        document = attest(folder, sign, tmp_path / "ready.json", "--key-id", "release")
        envelope = Envelope.from_dict(json.loads(json.dumps(document)))
        envelope.verify([public], 1)
        assert json.loads(envelope.payload) == ready_statement(folder)
        changed = json.loads(json.dumps(document))
        if number % 4 == 0:
            changed["payloadType"] = "application/json"
        else:
            holder, name = (changed["signatures"][0], "sig") if number % 4 == 1 else (changed, "payload")
            content = bytearray(base64.b64decode(holder[name]))
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            holder[name] = base64.b64encode(content).decode()
        with pytest.raises(VerificationError):
            Envelope.from_dict(changed).verify([public], 1)
        rejected += 1
    assert rejected == 100


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's client")
def test_ssh_keygen_verifies_what_it_signed(tmp_path: Path) -> None:
    key = tmp_path / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    document = attest(ready(tmp_path / "audit"), f"ssh-keygen -q -Y sign -n in-toto -f {key}", tmp_path / "ready.json")
    (tmp_path / "signers").write_text(f"me@example.org {key.with_suffix('.pub').read_text()}")
    signature = document["signatures"][0]["sig"]
    armored = f"-----BEGIN SSH SIGNATURE-----\n{signature}\n-----END SSH SIGNATURE-----\n"
    (tmp_path / "sig").write_text(armored)
    envelope = Envelope.from_dict(document)
    command = ["ssh-keygen", "-Y", "verify", "-n", "in-toto", "-f", str(tmp_path / "signers"), "-I", "me@example.org"]
    for signed, status in ((envelope.pae(), 0), (envelope.pae() + b" ", 255)):
        verified = subprocess.run([*command, "-s", tmp_path / "sig"], input=signed, capture_output=True, check=False)
        assert verified.returncode == status


@pytest.mark.parametrize("sign", ["false", "true", "no-such-program", "'"])
def test_a_failing_signer_writes_nothing(tmp_path: Path, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "ready.json"
    assert main(["audit", "attest", str(ready(tmp_path)), "--sign", sign, "--output", str(output)]) == 1
    assert "command" in capsys.readouterr().err
    assert not output.exists()
