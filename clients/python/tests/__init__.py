"""The tests of the Python client."""

import logging

# Failures that tests cause are not reported.
logging.getLogger("fluxgate").addHandler(logging.NullHandler())
logging.getLogger("fluxgate").propagate = False
