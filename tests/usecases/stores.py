"""Stores that fail a process at a chosen call, and a table in moto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnkeep.errors import StoreUnavailableError
from turnkeep.ledger.store import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnkeep.ledger.store import ItemStore


class Died(BaseException):
    """The process is gone."""


class Dying:
    """A store whose n-th call is the process's last; ``landed``: it took place all the same."""

    def __init__(self, store: ItemStore, nth: int, *, landed: bool) -> None:
        self._store, self._left, self._landed = store, nth, landed

    def read(self, reads: Sequence[Any]) -> Any:
        return self._call("read", reads)

    def write(self, writes: Sequence[Any]) -> Any:
        return self._call("write", writes)

    def transact(self, writes: Sequence[Any]) -> Any:
        return self._call("transact", writes)

    def delete(self, keys: Sequence[Any]) -> Any:
        return self._call("delete", keys)

    def _call(self, name: str, what: Sequence[Any]) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._landed):
            raise Died
        result = getattr(self._store, name)(what)
        if self._left == 0:
            raise Died
        return result


class Losing(Dying):
    """A store whose n-th call is not answered; ``landed``: it took place all the same."""

    def _call(self, name: str, what: Sequence[Any]) -> Any:
        self._left -= 1
        if self._left != 0:
            return getattr(self._store, name)(what)
        if self._landed:
            getattr(self._store, name)(what)
        if name == "write":
            return [Unavailable(StoreUnavailableError()) for _ in what]
        raise StoreUnavailableError


class Paused(Dying):
    """A store that lets somebody else in right before its n-th call."""

    def __init__(self, store: ItemStore, nth: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(store, nth, landed=True)
        self._meanwhile = meanwhile

    def _call(self, name: str, what: Sequence[Any]) -> Any:
        self._left -= 1
        if self._left == 0:
            self._meanwhile()
        return getattr(self._store, name)(what)


class Counting(Dying):
    """A store that writes down what it is asked: the kind of each call, and of each operation in it."""

    def __init__(self, store: ItemStore) -> None:
        super().__init__(store, 0, landed=True)
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def _call(self, name: str, what: Sequence[Any]) -> Any:
        kinds = tuple("Delete" if isinstance(one, tuple) else type(one).__name__ for one in what)
        self.calls.append((name, kinds))
        return getattr(self._store, name)(what)
