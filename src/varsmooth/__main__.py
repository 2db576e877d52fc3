"""`python -m varsmooth` is the command `varsmooth`."""

import sys

from varsmooth.cli import main

if __name__ == "__main__":
    sys.exit(main())
