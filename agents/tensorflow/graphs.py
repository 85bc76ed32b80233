"""What a graph computes: gradients or none, its products in which types, on which devices."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# What ``GradientTape`` and ``tf.gradients`` call what they make, and a call of another graph, which
# may hold anything.
GRADIENTS = ("gradient_tape/", "gradients/")
CALLS = (
    *("PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile"),
    *("If", "StatelessIf", "Case", "StatelessCase", "XlaLaunch"),
)
PRODUCTS = (
    *("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"),
    *("Conv2D", "Conv3D", "DepthwiseConv2dNative"),
)
MOST_OPERATIONS = 20_000
TRAINS, UNCLEAR, OTHER = 2, 1, 0


class GraphLook:
    """What was found in one graph, and in those that it calls."""

    __slots__ = ("devices", "does", "products")

    def __init__(self, graph: Any) -> None:
        self.does = _does(graph)
        self.products: dict[str, int] = {}
        self.devices: set[str] = set()
        unseen: list[Any] = []
        for each in _operations(graph, unseen):
            if self.does == UNCLEAR and any(name in each.name for name in GRADIENTS):
                self.does = TRAINS
            if each.type in PRODUCTS and len(each.outputs):
                dtype = each.outputs[0].dtype.name
                self.products[dtype] = self.products.get(dtype, 0) + 1
            # Nothing: where TensorFlow puts it, which is the first device.
            if where := each.device:
                self.devices.add(where.rpartition("/device:")[2])
        if self.does == UNCLEAR and not unseen:
            # A loop over a sequence, say: all that it calls was seen, and computes no gradient.
            self.does = OTHER


def _does(graph: Any) -> int:
    operations = graph.get_operations()
    if len(operations) > MOST_OPERATIONS:
        return UNCLEAR
    found = OTHER
    for each in operations:
        if any(name in each.name for name in GRADIENTS):
            return TRAINS
        if each.type in CALLS:
            found = UNCLEAR
    return found


def _operations(graph: Any, unseen: list[Any]) -> Iterator[Any]:
    """Yield the operations of a graph and of those that it calls, as long as there are few.

    What is left out is added to ``unseen``.
    """
    left, seen, room = [graph], set(), MOST_OPERATIONS
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        operations = one.get_operations()
        room -= len(operations)
        if room < 0:
            unseen.append(one)
            return
        yield from operations
        inner = getattr(one, "_functions", None)
        called = list(inner.values()) if isinstance(inner, dict) else []
        built = [more for x in called if (more := _built(x)) is not None]
        calls = any(each.type in CALLS for each in operations)
        if len(built) < len(called) or (calls and not called):
            unseen.append(one)
        left += built


def _built(function: Any) -> Any:
    """Return the graph of a function that is called, if it has one: to ask for it may build one."""
    found = getattr(function, "_cached_graph", None) or getattr(function, "_generated_graph", None)
    return found or getattr(function, "__dict__", {}).get("graph")
