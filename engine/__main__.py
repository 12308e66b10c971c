"""`python -m engine` is `selector-audit`."""

import sys

from engine.cli import main

sys.exit(main())
