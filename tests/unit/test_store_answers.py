"""What Azure's answers mean, in the words that obstore has for them, and Azurite or Azure itself."""

from __future__ import annotations

import pytest

from onceonly.errors import ConfigurationError
from onceonly.stores import answers, opened
from onceonly.stores.access import Hadoop
from onceonly.stores.address import Kind, parse

AZURE = "abfss://data@acc.dfs.core.windows.net/chk"
_DENIED = "This request is not authorized to perform this operation using this permission."
_TOO_LATE = (
    "Signature not valid in the specified time frame: Start [] - Expiry [2020-01-01] - Current [2026-11-28]"
)
_REQUEST = "Generic MicrosoftAzure error: Error performing token request: Error performing POST https://login/t/token"


@pytest.mark.parametrize(
    ("text", "what", "next_step"),
    [
        (
            f"Bulk delete request failed for key a/1: {_DENIED} (code: 403)",
            r"does not permit it \(403\)",
            "rcwdl",
        ),
        (f"status code: 403 Forbidden: <Code>AuthenticationFailed</Code> {_TOO_LATE}", "have expired", "SAS"),
        (
            "kind: Connect, error: InvalidCertificate( UnknownIssuer, )",
            r"trust \(UnknownIssuer",
            "SSL_CERT_FILE",
        ),
        ("Error reading federated token file", "workload identity cannot be read", "oauth2.token.file"),
        (
            f"{_REQUEST} in 7ms - Server returned non-2xx status code: 401 Unauthorized",
            "secret is another",
            "correct",
        ),
    ],
)
def test_what_azure_refuses_is_told_by_its_cause(text: str, what: str, next_step: str) -> None:
    error = answers.refusal(Exception(text), kind=Kind.AZURE, where="abfss://x", verb="removed", denied=False)
    with pytest.raises(ConfigurationError, match=what):
        raise error
    assert next_step in (error.next_step or "")


@pytest.mark.parametrize(
    ("address", "given", "said"),
    [
        (AZURE, {"fs.azure.account.key": "no base64!"}, "Invalid Access Key"),
        (
            AZURE,
            {"fs.azure.account.auth.type": "SAS", "fs.azure.sas.fixed.token": "abc"},
            "Missing component in SAS",
        ),
        (
            "s3a://b-1",
            {"fs.s3a.encryption.algorithm": "SSE-C", "fs.s3a.encryption.key": "base64!"},
            "Invalid symbol",
        ),
        ("s3a://b-1", {"fs.s3a.proxy.host": "no host"}, "builder error.*proxy.host"),
        (
            "gs://b-1",
            {"fs.gs.auth.service.account.json.keyfile": "/none.json"},
            "Unable to open.*/none.json.*executors",
        ),
        (
            "gs://b-1",
            {"fs.gs.auth.service.account.email": "me@p", "fs.gs.auth.service.account.private.key": "base64!"},
            "Error reading pem",
        ),
    ],
)
def test_a_login_that_cannot_be_one_is_refused_and_not_shown(
    address: str, given: dict[str, str], said: str
) -> None:
    opened.tell(Hadoop(given))
    try:
        with pytest.raises(ConfigurationError, match=said) as caught:
            opened.open_store(parse(address))
        assert "base64!" not in str(caught.value)
    finally:
        opened.tell(Hadoop())
