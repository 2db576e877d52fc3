"""Short names of what many tests take."""

import pytest

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
