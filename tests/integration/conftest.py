"""What tests against real servers leave behind is ended with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from onceonly.sinks.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceonly.sinks.kafka.options import KafkaOptions


@pytest.fixture(autouse=True)
def admins_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Otherwise each goes on asking for its broker when that is gone, in a thread that all later tests pay for."""
    made = list[Admin]()
    make = Admin.__init__

    def remember(admin: Admin, options: KafkaOptions) -> None:
        make(admin, options)
        made.append(admin)

    monkeypatch.setattr(Admin, "__init__", remember)
    yield
    for admin in made:
        admin.close()
