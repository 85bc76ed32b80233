"""Whether ``torch.compile`` has compiled an optimizer's step.

Such a program checks the hooks of all optimizers before each step, and is compiled again when they
have changed: that may take minutes, and after a few times the compiler gives up. So where there is
one, we neither add nor remove hooks.
"""

from __future__ import annotations

import sys
from itertools import repeat
from operator import contains
from types import ModuleType

from ..modules import loaded, names_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

COMPILER = "torch._dynamo.convert_frame"
ENTRIES = "torch._C._dynamo.eval_frame"
OPTIMIZER = "torch.optim.optimizer"
# The compiler's own name for that module, beside the code that it compiled with a step inside.
BESIDE = "__import_torch_dot_optim_dot_optimizer"
# The functions around each step; some steps begin a program of their own, and these another.
AROUND = ("profile_hook_step", "wrapper")


def step_is_compiled() -> bool:
    """Tell whether there is such a program; also when there was one."""
    if loaded(COMPILER) is None:
        return False
    return _around() or _beside()


def _beside() -> bool:
    modules = list(sys.modules.values())
    # Thousands, nearly all of this kind: these are checked in C, a tenth of a microsecond each.
    plain = [module for module in modules if type(module) is ModuleType]
    if any(map(contains, map(vars, plain), repeat(BESIDE))):
        return True
    others = (names_of(module) for module in modules if type(module) is not ModuleType)
    return any(names is not None and BESIDE in names for names in others)


def _around() -> bool:
    entries = (loaded(ENTRIES) or {}).get("_debug_get_cache_entry_list")
    code = _code()
    return code is not None and entries is not None and bool(entries(code))


def _code() -> CodeType | None:
    makes, made = AROUND
    kind = (loaded(OPTIMIZER) or {}).get("Optimizer")
    maker = getattr(getattr(kind, makes, None), "__code__", None)
    inner = getattr(maker, "co_consts", ())
    return next((code for code in inner if getattr(code, "co_name", None) == made), None)
