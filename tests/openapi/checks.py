"""The checks of `tests/run openapi`: no call with a valid key is refused for its key.

`WITHOUT_HOOK=1` leaves out the hook that the repository ships, and then some calls are.
"""

import importlib
import os

import schemathesis

if not os.environ.get("WITHOUT_HOOK"):
    importlib.import_module("schemathesis_hooks")

REFUSALS = {"key_missing", "key_malformed", "key_reused", "scope_missing"}


@schemathesis.check
def valid_keys_are_accepted(context, response, case):
    if not case.meta.generation.mode.is_positive:
        return
    if response.headers.get("content-type", [""])[0].startswith("application/problem+json"):
        code = response.json().get("code")
        assert code not in REFUSALS, f"a valid call was refused: {code}"
