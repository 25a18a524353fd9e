"""`python -m retinue.testing.fake_llm` serves a script."""

import sys

from retinue.testing.fake_llm.fake_program import main

sys.exit(main())
