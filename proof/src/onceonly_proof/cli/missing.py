"""The error for a package that a command needs and that is not installed."""

from __future__ import annotations

from onceonly.errors import SetupError


def missing(error: ModuleNotFoundError) -> SetupError:
    """Return the error for a campaign's package that is not installed."""
    return SetupError(
        f"the campaign needs the package {error.name}", next_step="run: pip install 'onceonly[proof]'"
    )
