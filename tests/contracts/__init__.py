"""One contract for each port; every implementation runs it."""

import pytest

for part in ("channel", "store", "store_keeping", "store_reading", "store_writing", "world"):
    pytest.register_assert_rewrite(f"tests.contracts.{part}")
