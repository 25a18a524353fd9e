"""One contract for each port; every implementation runs it."""

import pytest

pytest.register_assert_rewrite("tests.contracts.store")
