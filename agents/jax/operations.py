"""What one compiled program is made of, read a little at a time.

An operation takes about a microsecond, a constant a few; the module is a description on the host,
and holds nothing that is on a device.
"""

from __future__ import annotations

from time import monotonic_ns

from ..modules import Missing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# The count of a larger program ends here.
MOST_OPERATIONS = 40_000
# Products of matrices whose type is read.
MOST_PRODUCTS = 200
# Operations between two readings of the clock.
STRETCH = 64
LOOP, CALL, PRODUCTS = "kWhile", "kCustomCall", ("kDot", "kConvolution")
CONSTANT = "kConstant"
# What devices send each other, as far as this version has it.
COLLECTIVES = (
    "kAllReduce", "kAllReduceStart", "kAllGather", "kAllGatherStart", "kReduceScatter",
    "kAllToAll", "kCollectivePermute", "kCollectivePermuteStart", "kCollectiveBroadcast",
)  # fmt: skip
# In names of library calls, as in "__cublas$gemm", "__cudnn$convForward", "__onednn$matmul".
LIBRARY = ("gemm", "matmul", "$conv")


class Operations:
    """Counts the operations of a module."""

    def __init__(self, module: Any) -> None:
        self.number = 0
        # Of the arrays that are part of the program.
        self.constant_bytes = 0
        self._loops = self._collectives = 0
        self._products: dict[str, int] = {}
        self._left = MOST_PRODUCTS
        self._codes: dict[str, Any] = {}
        self._walk: Iterator[None] | None = self._steps(module)

    def read(self, until_ns: int) -> bool:
        """Read on until then; returns whether all is read."""
        for _ in self._walk or ():
            if monotonic_ns() >= until_ns:
                return False
        self._walk = None
        return True

    def facts(self) -> dict[str, Any]:
        """Return what was found."""
        return {
            "operations": self.number,
            "whole": self.number < MOST_OPERATIONS,
            "loops": self._loops,
            "collectives": self._collectives,
            "products": self._products,
        }

    def _steps(self, module: Any) -> Iterator[None]:
        for computation in module.computations():
            for operation in computation.instructions():
                self._note(operation)
                self.number += 1
                if self.number >= MOST_OPERATIONS:
                    return
                if self.number % STRETCH == 0:
                    yield

    def _note(self, operation: Any) -> None:
        code = operation.opcode
        if not self._codes:
            self._codes = _codes(type(code))
            self._multiplies = self._codes[CALL], *(self._codes[name] for name in PRODUCTS)
            found = (getattr(type(code), name, None) for name in COLLECTIVES)
            self._communicates = {each for each in found if each is not None}
        if code is self._codes[LOOP]:
            self._loops += 1
        elif code is self._codes[CONSTANT]:
            self.constant_bytes += _bytes(operation.to_string())
        elif code in self._communicates:
            self._collectives += 1
        elif code in self._multiplies and self._left > 0:
            name = _product(operation, is_call=code is self._codes[CALL])
            if name is not None:
                self._left -= 1
                self._products[name] = self._products.get(name, 0) + 1


def _codes(kinds: Any) -> dict[str, Any]:
    """Return the codes that we know, by name; each is one object, so comparing is cheap."""
    found = {name: getattr(kinds, name, None) for name in (LOOP, CALL, CONSTANT, *PRODUCTS)}
    if None in found.values():
        raise Missing(f"no kinds of operations in {kinds.__qualname__}")
    return found


def _product(operation: Any, *, is_call: bool) -> str | None:
    """Return the type of what is multiplied; ``None`` where nothing is."""
    if is_call:
        text = operation.to_string()
        target = text.partition('custom_call_target="')[2].partition('"')[0]
        if not any(word in target for word in LIBRARY):
            return None
    operands = operation.operands()
    return _type((operands[0] if operands else operation).to_string())


def _bytes(text: str) -> int:
    """Return the size of the array in "%name = f32[8,8]{1,0} constant({...})"; 0: not known."""
    kind, bracket, rest = text.partition(" = ")[2].partition("[")
    # As in "f8e4m3fn"; a "pred" takes a byte.
    bits = kind.lstrip("bcfsu").partition("e")[0] if kind != "pred" else "8"
    sizes = rest.partition("]")[0]
    if not bracket or not bits.isdigit():
        return 0
    size = max(1, int(bits) // 8)
    for each in sizes.split(",") if sizes else ():
        if not each.isdigit():
            return 0
        size *= int(each)
    return size


def _type(text: str) -> str:
    """Return the type in "%name = f32[8,8]{1,0} dot(..)"."""
    return text.partition(" = ")[2].lstrip("( ").partition("[")[0][:16]
