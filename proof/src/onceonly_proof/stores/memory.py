"""A store of the decision log in memory, that can fail at any operation. For tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class MemoryStore:
    """Fulfils ``onceonly.stores.port.RewritableStore``. Several drivers may share one ``files``.

    ``hook`` is called with the operation and the name before each operation; what it raises leaves the
    operation not begun, as a crash would. ``abreast`` may be set, for requests in several threads.
    """

    abreast = 1

    def __init__(
        self, files: dict[str, bytes] | None = None, *, hook: Callable[[str, str], None] | None = None
    ) -> None:
        self.files = files if files is not None else {}
        self.hook = hook

    def prepare(self, folders: Iterable[str]) -> None:
        """A memory is fit."""

    def where(self, name: str) -> str:
        return f"memory:/{name}"

    def put_if_absent(
        self, name: str, data: bytes, *, before_publish: Callable[[], None] | None = None
    ) -> bool:
        self._passing("put", name)
        if before_publish is not None:
            before_publish()
        return self.files.setdefault(name, data) is data

    def get(self, name: str) -> bytes | None:
        self._passing("get", name)
        return self.files.get(name)

    def get_first(self, name: str, size: int) -> bytes | None:
        data = self.get(name)
        return None if data is None else data[:size]

    def list_names(self, folder: str) -> list[str]:
        self._passing("list", folder)
        return [
            name for name in self.files if name.startswith(folder) and "/" not in name.removeprefix(folder)
        ]

    def list_folders(self, folder: str) -> list[str]:
        self._passing("list", folder)
        below = [name.removeprefix(folder) for name in self.files if name.startswith(folder)]
        return list(dict.fromkeys(name.partition("/")[0] for name in below if "/" in name))

    def tree(self, folder: str) -> list[str]:
        self._passing("list", folder)
        return [name for name in self.files if name.startswith(folder)]

    def replace(self, name: str, data: bytes) -> None:
        self._passing("replace", name)
        self.files[name] = data

    def delete(self, name: str) -> None:
        self._passing("delete", name)
        self.files.pop(name, None)

    def sync(self, name: str) -> None:
        self._passing("sync", name)

    def drop_leftovers(self, dead: Callable[[str], bool]) -> None:  # noqa: ARG002  a put here is never broken off
        self._passing("drop", "")

    def _passing(self, operation: str, name: str) -> None:
        if self.hook is not None:
            self.hook(operation, name)
