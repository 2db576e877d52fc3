"""The terminal of these tests."""

from tests.terminal import cli as cli
