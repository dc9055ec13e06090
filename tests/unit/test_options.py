"""Options are declared, read, and never give a secret away."""

from __future__ import annotations

import pytest

from onceonly.errors import ConfigurationError
from onceonly.options import Option, boolean, public_options, read_options, size, whole, without_secrets
from onceonly.ports import TwoPhaseCommitSink
from onceonly.settings.query import SinkSettings
from onceonly.settings.registry import BUILT_IN, load, use_of

CANARY = "hunter2-canary"
DECLARED = (
    Option(name="url", doc="where", required=True),
    Option(name="password", doc="whose", secret=True),
    Option(name="batchSize", doc="how many", default="100", read=whole),
    Option(name="limit", doc="how much", default="1g", read=size),
    Option(name="strict", doc="whether", default="false", read=boolean),
    Option(name="mode", doc="which way", default="fast", choices=("fast", "safe")),
)


class BankSink(TwoPhaseCommitSink[None]):
    """A sink with a secret, never made."""

    name = "bank"
    declared = DECLARED


def read(**given: str) -> dict[str, object]:
    return read_options(DECLARED, {"url": "u", **given}, who="the sink bank")


def test_names_in_any_case_give_values_by_their_declared_names() -> None:
    values = read(BATCHSIZE="7", limit="2 MB", strict="True", mode="safe")
    assert values == {
        "url": "u",
        "password": None,
        "batchSize": 7,
        "limit": 2 * 1024**2,
        "strict": True,
        "mode": "safe",
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"batchsise": "7"}, "did you mean batchSize"),
        ({"zzz": "7"}, "It knows batchSize, limit"),
        ({"batchSize": "-1"}, "must be a whole number"),
        ({"limit": "much"}, "such as 1048576, 128m or 1g"),
        ({"strict": "yes"}, "must be true or false"),
        ({"mode": "slow"}, "must be one of fast, safe"),
    ],
)
def test_a_wrong_option_is_named_with_what_it_can_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**given)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("form", "given", "step"),
    [
        ("postgres", {"url": "jdbc:postgresql://h/db", "table": "t"}, "write it without jdbc:"),
        ("postgres", {"url": "postgresql://h/db", "table": "t", "user": "u"}, "postgresql://user@host"),
        ("sql", {"dbTable": "t"}, "by the option table"),
        ("redis", {"host": "h", "port": "6379"}, "redis://host:6379/0"),
        ("opensearch", {"es.nodes": "h"}, "into the option url"),
        ("elasticsearch", {"es.resource": "i"}, "by the option index"),
        ("files", {"path": "/x", "checkpointlocaton": "/c"}, "did you mean checkpointLocation?"),
        (
            "kafka",
            {"checkpoint_location": "/c", "kafka.bootstrap.servers": "b:1"},
            "did you mean checkpointLocation?",
        ),
        ("files", {"path": "/x", "maxfilespertrigger": "1"}, "maxFilesPerTrigger is an option of the source"),
        ("sqlite", {"maxOffsetsPerTrigger": "1"}, "give it to readStream"),
        ("files", {"path": "/x", "zzz": "1"}, "those that begin with onceonly."),
        ("kafka", {"topics": "t", "kafka.bootstrap.servers": "b:1"}, "did you mean topic?"),
        ("kafka", {"bootstrap.servers": "b:1"}, "did you mean kafka.bootstrap.servers?"),
    ],
)
def test_what_other_writers_call_an_option_is_led_to_ours(
    form: str, given: dict[str, str], step: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(BUILT_IN[form])(given)
    assert step in caught.value.next_step


def test_no_option_of_ours_is_led_elsewhere() -> None:
    for form in BUILT_IN:
        sink = load(BUILT_IN[form])
        assert not {option.name.lower() for option in sink.declared} & set(sink.instead)
        assert all(name == name.lower() for name in sink.instead)


def test_a_required_option_is_missed_by_name() -> None:
    with pytest.raises(ConfigurationError, match="option url of the sink bank is missing"):
        read_options(DECLARED, {}, who="the sink bank")


def test_a_secret_does_not_show_itself_not_even_when_it_is_wrong() -> None:
    values = read(password=CANARY)
    assert values["password"] == CANARY
    assert CANARY not in repr(values)
    pin = Option(name="pin", doc="four digits", secret=True, read=whole)
    with pytest.raises(ConfigurationError) as caught:
        read_options((pin,), {"pin": CANARY}, who="the sink bank")
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"password": CANARY},
        {"url": f"postgresql://bob:{CANARY}@db/bank"},
        {"url": f"host=db user=bob password={CANARY}"},
        {"url": f"Server=db;Uid=bob;Pwd={CANARY}"},
        {"url": f"https://api/?access_token={CANARY}"},
        {"url": f"Endpoint=sb://x;SharedAccessKey={CANARY}"},
        {"url": f"AccountName=x;AccountKey={CANARY}"},
        {"url": f"https://x.blob/o?sv=1&sig={CANARY}"},
        {"undeclared": CANARY},
    ],
)
def test_what_is_or_looks_like_a_secret_is_never_written_down(given: dict[str, str]) -> None:
    options = {"mode": "safe", **given}
    assert public_options(DECLARED, options) == {"mode": "safe"}
    use = use_of(SinkSettings(name="bank", options=options), BankSink)
    assert CANARY not in repr(use)


def test_an_option_whose_name_speaks_of_a_secret_is_none_for_the_log_though_nobody_marked_it() -> None:
    declared = (Option(name="api.key", doc="forgotten to mark"), Option(name="keyColumn", doc="the key"))
    assert public_options(declared, {"api.key": CANARY, "keyColumn": "id"}) == {"keycolumn": "id"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"no answer of https://bob:{CANARY}@db:9200/_bulk?x=1", "no answer of https://[redacted]@db:9200/_bulk?x=1"),
        (f'FATAL: password="{CANARY} two" of bob', "FATAL: password=[redacted] of bob"),
        (f"{{'sasl.password': '{CANARY}', 'acks': -1}}", "{'sasl.password': [redacted], 'acks': -1}"),
        (f'{{"session_token":"{CANARY}"}}', '{"session_token":[redacted]}'),
        (f"Module required username=u password={CANARY};", "Module required username=u password=[redacted];"),
        (f"AccountName=a;AccountKey={CANARY};x", "AccountName=a;AccountKey=[redacted];x"),
        (f"403 of https://b/o?sv=1&sig={CANARY}&se=2", "403 of https://b/o?sv=1&sig=[redacted]&se=2"),
        (f"https://b/o?X-Amz-Signature={CANARY}", "https://b/o?X-Amz-Signature=[redacted]"),
        (f"Driver=x;UID=bob;PWD={CANARY};Port=1", "Driver=x;UID=bob;PWD=[redacted];Port=1"),
        (f"{{'authorization': 'Basic {CANARY}'}}", "{'authorization': 'Basic [redacted]'}"),
        (f"Authorization: Bearer {CANARY}", "Authorization: Bearer [redacted]"),
        ("a slot failed at hdfs://nn:8020/a@b at 12:00:01, see --because", None),
        ("the token has ended; 3 of 4 keys are assigned: yes", None),
    ],
)  # fmt: skip
def test_what_a_client_says_is_told_without_its_secrets(said: str, told: str | None) -> None:
    assert without_secrets(said) == (said if told is None else told)


def test_plain_addresses_are_written_down() -> None:
    given = {"url": "postgresql://bob@db:5432/bank?sslmode=require"}
    assert public_options(DECLARED, given) == given
