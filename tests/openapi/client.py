"""Pays with the client that openapi-python-client has generated. Until a response arrives, it sends
the same request with the same key: `client.py URL KEY`."""

import sys

import httpx
from payments_client import AuthenticatedClient
from payments_client.api.payments import create_payment_intent
from payments_client.models import PaymentOrder

url, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token="sk_test_alice")
order = PaymentOrder(amount=2000, currency="usd", payment_method="pm_card_visa", confirm=True)
for _ in range(3):
    try:
        response = create_payment_intent.sync_detailed(
            client=client, body=order, idempotency_key=key
        )
    except httpx.TransportError:
        print("cut")
        continue
    replayed = response.headers.get("Idempotency-Replayed", "false")
    print(int(response.status_code), response.parsed.id, replayed)
    break
