"""Schemathesis: each call is an operation of its own, so each call gets an idempotency key of its own.

    SCHEMATHESIS_HOOKS=schemathesis_hooks schemathesis run http://127.0.0.1:8080/openapi.json

Without this hook, Schemathesis sends one key with several requests, as a broken client does, and
gets 422 (`key_reused`). A call without a key, and one whose key is malformed on purpose, stays as it
is.
"""

import re
import uuid

import schemathesis

KEY = re.compile(r"[!#-+\--~]{1,255}")


def key_header(case):
    """The header that has the key of an operation, or None: `describe_openapi` has written it."""
    policy = case.operation.definition.raw.get("x-idempotency") or {}
    place, _, name = policy.get("key_from", "").partition(":")
    return name if place == "header" else None


@schemathesis.hook
def before_call(context, case, kwargs):
    name = key_header(case)
    for header in list(case.headers or {}):
        well_formed = KEY.fullmatch(str(case.headers[header]))
        if name and header.lower() == name.lower() and well_formed:
            case.headers[header] = str(uuid.uuid4())
