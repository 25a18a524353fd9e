"""How a receiver tells our announcements from others."""

from __future__ import annotations

import time

import pytest

from retinue import RetinueError
from retinue.channels.webhook_signature import sign, verify_webhook
from tests.channels.receiver import KEY, SECRET, hook, signed
from tests.contracts.channel import delivery
from tests.contracts.world import run_async


def test_the_signature_is_that_of_the_standard() -> None:
    """The example by which the libraries of Standard Webhooks test themselves."""
    assert (
        sign(KEY, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b'{"test": 2432232314}')
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("secret", [SECRET, "a plain secret"])
@run_async
async def test_another_implementation_accepts_what_we_sign(secret: str) -> None:
    from openai import InvalidWebhookSignatureError, OpenAI

    async with hook(secret=["an older secret", secret]) as (receiver, channel):
        receiver.secret = secret
        await channel.send(delivery("naïve 漢字 \U0001f389"))
        ((headers, body),) = receiver.requests
    with OpenAI(api_key="none") as client:
        client.webhooks.verify_signature(body, headers, secret=secret)
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.verify_signature(body + b" ", headers, secret=secret)


def test_a_good_request_gives_its_key() -> None:
    assert verify_webhook(SECRET, signed(), b"{}") == "k"
    assert verify_webhook(SECRET, signed(at=time.time() - 290), b"{}") == "k"
    assert (
        verify_webhook(SECRET, signed(at=time.time() - 3_000), b"{}", tolerance_seconds=3_600)
        == "k"
    )
    several = signed() | {
        "WEBHOOK-SIGNATURE": f"v1a,x v2,y v1,AAAA {signed()['WEBHOOK-SIGNATURE']} v1,BBBB"
    }
    assert verify_webhook(SECRET, several, b"{}") == "k"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Webhook-Id": "other"}, "not signed"),
        ({"Webhook-Id": ""}, "no webhook-id"),
        ({"Webhook-Id": "k.1"}, "no webhook-id"),
        ({"Webhook-Id": "k\n"}, "no webhook-id"),
        ({"Webhook-Timestamp": "1"}, "not signed"),
        ({"Webhook-Timestamp": ""}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "now"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "-1"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "1e9"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "١٢"}, "webhook-timestamp"),
        ({"Webhook-Timestamp": "9" * 5_000}, "webhook-timestamp"),
        ({"WEBHOOK-SIGNATURE": ""}, "not signed"),
        ({"WEBHOOK-SIGNATURE": "v1,"}, "not signed"),
        ({"WEBHOOK-SIGNATURE": "v1,ä\ud800\udc80"}, "not signed"),
        ({"WEBHOOK-SIGNATURE": sign(b"another", "k", str(int(time.time())), b"{}")}, "not signed"),
    ],
)
def test_a_request_that_was_changed_is_refused(changed: dict[str, str], why: str) -> None:
    with pytest.raises(RetinueError, match=why):
        verify_webhook(SECRET, signed() | changed, b"{}")


def test_a_request_without_headers_with_another_version_or_body_is_refused() -> None:
    good = signed()
    for name in good:
        with pytest.raises(RetinueError):
            verify_webhook(SECRET, {n: v for n, v in good.items() if n != name}, b"{}")
    for signature in (
        good["WEBHOOK-SIGNATURE"].replace("v1,", "v2,"),
        good["WEBHOOK-SIGNATURE"][:-4],
    ):
        with pytest.raises(RetinueError):
            verify_webhook(SECRET, good | {"WEBHOOK-SIGNATURE": signature}, b"{}")
    with pytest.raises(RetinueError):
        verify_webhook(SECRET, good, b"{ }")


@pytest.mark.parametrize("seconds", [-10_000, -310, 310, 10_000])
def test_a_request_of_another_time_is_refused(seconds: float) -> None:
    with pytest.raises(RetinueError, match="within"):
        verify_webhook(SECRET, signed(at=time.time() + seconds), b"{}")
