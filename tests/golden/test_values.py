import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook_lib.golden import values
from runbook_lib.golden.values import BadGoldenFile, GoldenValues, parse

SERIES = {"lm loss": {"start_step": 1, "end_step": 3, "step_interval": 1, "values": {"1": 10.5, "2": 9.5, "3": 9}}}
REQUEST = {"input_prompt": "Hi", "generated_text": " there", "generated_tokens": [1, 2], "logprobs": [-0.5, -1.5]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", GoldenValues(blank=True)),
        (" \n", GoldenValues(blank=True)),
        ("{}", GoldenValues()),
        (json.dumps(SERIES), GoldenValues(series={"lm loss": {1: 10.5, 2: 9.5, 3: 9.0}})),
        (json.dumps(json.dumps(SERIES)), GoldenValues(series={"lm loss": {1: 10.5, 2: 9.5, 3: 9.0}})),
        (
            '{"lm loss": {"start_step": 5, "step_interval": 5, "values": [3.0, 2.0]}, "iteration_timing_avg": 0.2}',
            GoldenValues(series={"lm loss": {5: 3.0, 10: 2.0}}, run_metrics={"iteration_timing_avg": 0.2}),
        ),
        (json.dumps({"0": REQUEST}), GoldenValues(requests={"0": REQUEST})),
        (json.dumps(REQUEST), GoldenValues(requests={"": REQUEST})),
        (
            json.dumps({"0": REQUEST, "throughput": [1.0, 2.0], "mem-max-allocated-bytes": 7}),
            GoldenValues(requests={"0": REQUEST}, run_metrics={"throughput": [1.0, 2.0], "mem-max-allocated-bytes": 7}),
        ),
        ('{"a": {"values": {}}}', GoldenValues(series={"a": {}})),
    ],
)
def test_every_form_is_read(content, expected):
    assert parse(content) == expected
    assert parse(content.encode()) == expected


@pytest.mark.parametrize("mark", ['"-inf"', '" Infinity "', "NaN", "-Infinity", "1e999", "1" + "0" * 400])
def test_values_that_are_not_finite_are_named_with_their_place(mark):
    assert parse(f'{{"lm loss": {{"values": {{"1": 2.5, "2": {mark}}}}}}}').not_finite == ("lm loss at step 2",)
    if "0" * 400 not in mark:
        assert parse(f'{{"0": {{"logprobs": [-0.5, {mark}]}}}}').not_finite == ("0 logprobs at 1",)
        assert parse(f'{{"0": {{"top": [{{"a": {mark}}}]}}, "throughput": [{mark}]}}').not_finite == (
            "0 top at 0 a",
            "throughput at 0",
        )


@pytest.mark.parametrize("values", ['{"5": "nan", "10": 1, "15": " NaN"}', '["nan", 1, "nan"]'])
def test_steps_that_were_not_observed(values):
    golden = parse(f'{{"a": {{"start_step": 5, "step_interval": 5, "values": {values}}}}}')
    assert (golden.unobserved, golden.not_finite) == ({"a": {5, 15}}, ())
    assert parse('{"0": {"logprobs": ["nan"]}, "throughput": ["nan"]}').not_finite == (
        "0 logprobs at 0",
        "throughput at 0",
    )


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("{", "line 1"),
        ("nonsense", "line 1"),
        ("[1, 2]", "a list"),
        ('"text"', "line 1"),
        (b"\xff\xfe{}", "UTF-8"),
        ("{}\udc80", "UTF-8"),
        ('{"a": {"values": {"1": 1.0, "01": 2.0}}}', "twice"),
        ('{"a": {"values": {"first": 1.0}}}', "first"),
        ('{"a": {"values": {"-1": 1.0}}}', "-1"),
        ('{"a": {"values": {"1": "10.5"}}}', "a string"),
        ('{"a": {"values": {"1": true}}}', "Boolean"),
        ('{"a": {"values": 3}}', "a number"),
        ('{"a": {"start_step": "x", "values": [1.0]}}', "start_step"),
        ('{"a": {"step_interval": 0, "values": [1.0]}}', "step_interval"),
        ('{"a": "text"}', "a string"),
        ('{"a":' * 40 + "1" + "}" * 40, "deeper"),
        ("[" * 200_000, "deeper"),
        ('{"a": {"values": {"1": ' + "9" * 5000 + "}}}", "digits"),
    ],
)
def test_other_content_is_refused_with_a_reason(content, word):
    with pytest.raises(BadGoldenFile, match=word):
        parse(content)


def test_a_huge_file_is_not_read(monkeypatch):
    monkeypatch.setattr(values, "MAX_BYTES", 10)
    with pytest.raises(BadGoldenFile, match="more than 10"):
        parse("{" + " " * 10 + "}")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["nan", "values"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["values", "1", "2", "logprobs", "lm loss", "start_step"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_json.map(json.dumps) | st.text() | st.binary())
def test_any_text_is_parsed_or_refused(content):
    with suppress(BadGoldenFile):
        parsed = parse(content)
        text = content.decode() if isinstance(content, bytes) else content
        assert parsed.blank == (not text.strip())
        data = {} if parsed.blank else json.loads(content)
        keys = set(json.loads(data) if isinstance(data, str) else data)
        assert {*parsed.series, *parsed.run_metrics} <= keys
        assert all(isinstance(value, float | int) for steps in parsed.series.values() for value in steps.values())
